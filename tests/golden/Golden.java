import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

/** Writes the golden vectors into the directory given: messages, batches and append decisions, by Kafka's own classes. */
public final class Golden {
    private static final ObjectMapper JSON = new ObjectMapper().enable(JsonParser.Feature.ALLOW_COMMENTS);
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    public static void main(String[] args) throws Exception {
        Path to = Path.of(args[0]);
        messages(new PrintStream(to.resolve("messages.jsonl").toFile()));
        batches(new PrintStream(to.resolve("batches.jsonl").toFile()));
        decisions(new PrintStream(to.resolve("decisions.jsonl").toFile()));
    }

    // --- messages: each version filled from the schema that the jar carries ---

    private static void messages(PrintStream out) throws Exception {
        List<ApiKeys> requests = List.of(ApiKeys.PRODUCE, ApiKeys.API_VERSIONS, ApiKeys.INIT_PRODUCER_ID, ApiKeys.END_TXN,
            ApiKeys.ADD_PARTITIONS_TO_TXN, ApiKeys.ADD_OFFSETS_TO_TXN, ApiKeys.TXN_OFFSET_COMMIT, ApiKeys.SASL_HANDSHAKE, ApiKeys.SASL_AUTHENTICATE);
        List<ApiKeys> responses = List.of(ApiKeys.PRODUCE, ApiKeys.METADATA, ApiKeys.FIND_COORDINATOR, ApiKeys.DESCRIBE_CLUSTER, ApiKeys.FETCH,
            ApiKeys.SHARE_FETCH, ApiKeys.SHARE_ACKNOWLEDGE, ApiKeys.API_VERSIONS, ApiKeys.INIT_PRODUCER_ID, ApiKeys.END_TXN,
            ApiKeys.ADD_PARTITIONS_TO_TXN, ApiKeys.ADD_OFFSETS_TO_TXN, ApiKeys.TXN_OFFSET_COMMIT, ApiKeys.SASL_HANDSHAKE, ApiKeys.SASL_AUTHENTICATE);
        for (ApiKeys api : requests) write(out, api, "Request", false);
        for (ApiKeys api : responses) write(out, api, "Response", true);
    }

    private static void write(PrintStream out, ApiKeys api, String kind, boolean response) throws Exception {
        String name = api.messageType.name.replace("Request", "").replace("Response", "") + kind;
        JsonNode schema = JSON.readTree(Golden.class.getResourceAsStream("/common/message/" + name + ".json"));
        Class<?> converter = Class.forName("org.apache.kafka.common.message." + name + "DataJsonConverter");
        for (short v = low(schema.get("validVersions").asText()); v <= high(schema.get("validVersions").asText()); v++) {
            for (boolean full : new boolean[] {true, false}) {
                Filler filler = new Filler(name, schema, v, full);
                JsonNode fields = filler.struct(schema.get("fields"));
                ApiMessage message = (ApiMessage) method(converter, "read", JsonNode.class, short.class).invoke(null, fields, v);
                JsonNode written = (JsonNode) method(converter, "write", message.getClass(), short.class).invoke(null, message, v);
                // An unknown tagged field, which a proxy must keep.
                boolean tagged = full && v >= low(schema.get("flexibleVersions").asText());
                if (tagged) message.unknownTaggedFields().add(new RawTaggedField(77, new byte[] {1, 2, 3}));
                byte[] bytes = MessageUtil.toByteBufferAccessor(message, v).buffer().array();
                ObjectNode line = NODES.objectNode();
                line.put("message", name).put("key", api.id).put("version", v).put("shape", full ? "full" : "least");
                line.put("header", response ? api.responseHeaderVersion(v) : api.requestHeaderVersion(v));
                line.put("unknown_tag", tagged).set("fields", written);
                line.put("hex", HexFormat.of().formatHex(bytes));
                out.println(line);
            }
        }
        out.flush();
    }

    /** Fills a message with values that tell its fields apart: a counter, or the name and the counter. */
    private static final class Filler {
        private final boolean apiVersions;
        private final JsonNode common;
        private final short version;
        private final boolean full;
        private int counter;

        Filler(String name, JsonNode schema, short version, boolean full) {
            this.apiVersions = name.equals("ApiVersionsResponse");
            this.common = schema.path("commonStructs");
            this.version = version;
            this.full = full;
        }

        ObjectNode struct(JsonNode fields) throws Exception {
            ObjectNode node = NODES.objectNode();
            for (JsonNode field : fields) {
                if (!within(field.get("versions").asText())) continue;
                boolean tagged = field.has("tag") && within(field.get("taggedVersions").asText());
                if (tagged && !full) continue;
                String name = field.get("name").asText();
                node.set(Character.toLowerCase(name.charAt(0)) + name.substring(1), value(field, field.get("type").asText()));
            }
            return node;
        }

        JsonNode value(JsonNode field, String type) throws Exception {
            boolean nullable = field.has("nullableVersions") && within(field.get("nullableVersions").asText());
            if (!full && nullable) return NODES.nullNode();
            counter++;
            if (apiVersions && full) { // an answer without error, of apis that hapax decodes and one it does not
                switch (field.get("name").asText()) {
                    case "ErrorCode": return NODES.numberNode(0);
                    case "ApiKey": return NODES.numberNode(new int[] {ApiKeys.PRODUCE.id, ApiKeys.HEARTBEAT.id, ApiKeys.METADATA.id, ApiKeys.INIT_PRODUCER_ID.id}[counter / 4 % 4]);
                    case "MaxVersion": return NODES.numberNode(90 + counter);
                    default:
                }
            }
            if (type.startsWith("[]")) {
                ArrayNode array = NODES.arrayNode();
                for (int i = 0; full && i < (apiVersions ? 4 : 2); i++) array.add(value(without(field), type.substring(2)));
                return array;
            }
            switch (type) {
                case "bool": return NODES.booleanNode(full);
                case "int8": return NODES.numberNode(full ? 1 : 0);
                case "int16": return NODES.numberNode(full ? counter % 120 : 0);
                case "uint16": case "int32": return NODES.numberNode(full ? 1000 + counter : 0);
                case "int64": return NODES.numberNode(full ? 5_000_000_000L + counter : -1L);
                case "string": return NODES.textNode(full ? field.get("name").asText().toLowerCase() + "-" + counter : "");
                case "uuid": return NODES.textNode((full ? new Uuid(0x0102030405060708L, counter) : Uuid.ZERO_UUID).toString());
                case "bytes": return NODES.binaryNode(full ? new byte[] {(byte) counter, 2} : new byte[0]);
                case "records": return NODES.binaryNode(full ? bytes(idempotent(Compression.NONE, 7, (short) 1, counter, 2)) : new byte[0]);
                default: return struct(field.has("fields") ? field.get("fields") : commonFields(type));
            }
        }

        private JsonNode commonFields(String type) {
            for (JsonNode struct : common) if (struct.get("name").asText().equals(type)) return struct.get("fields");
            throw new IllegalStateException("no struct " + type);
        }

        private JsonNode without(JsonNode field) {
            ObjectNode copy = field.deepCopy();
            copy.remove("nullableVersions");
            return copy;
        }

        private boolean within(String range) {
            return !range.equals("none") && low(range) <= version && version <= high(range);
        }
    }

    private static short low(String range) {
        return range.equals("none") ? Short.MAX_VALUE : Short.parseShort(range.replace("+", "").split("-")[0]);
    }

    private static short high(String range) {
        return range.endsWith("+") ? Short.MAX_VALUE : Short.parseShort(range.substring(range.indexOf('-') + 1));
    }

    // --- batches ---

    private static void batches(PrintStream out) throws Exception {
        Compression[] compressions = {Compression.NONE, Compression.gzip().build(), Compression.snappy().build(), Compression.lz4().build(), Compression.zstd().build()};
        for (Compression compression : compressions) batch(out, "idempotent " + compression.type().name, idempotent(compression, 4711, (short) 3, 10, 20));
        batch(out, "no producer", MemoryRecords.withRecords(Compression.NONE, records(2)));
        batch(out, "first of an epoch", idempotent(Compression.NONE, 4711, (short) 0, 0, 1));
        batch(out, "straddles the wrap", idempotent(Compression.NONE, 4711, (short) 3, Integer.MAX_VALUE - 1, 4));
        batch(out, "ends at the last sequence", idempotent(Compression.NONE, 4711, (short) 3, Integer.MAX_VALUE, 1));
        batch(out, "greatest epoch and producer id", idempotent(Compression.NONE, Long.MAX_VALUE, Short.MAX_VALUE, 5, 1));
        batch(out, "transactional", MemoryRecords.withTransactionalRecords(Compression.NONE, 4711, (short) 3, 10, records(2)));
        for (ControlRecordType type : List.of(ControlRecordType.COMMIT, ControlRecordType.ABORT))
            batch(out, "control " + type.name().toLowerCase(), MemoryRecords.withEndTransactionMarker(0, 1_700_000_000_000L, -1, 4711, (short) 3, new EndTransactionMarker(type, 1)));
        ByteBuffer empty = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(empty, RecordBatch.MAGIC_VALUE_V2, 4711, (short) 3, 10, 0, 4, -1, TimestampType.CREATE_TIME, 1_700_000_000_000L, false, false);
        empty.flip();
        batch(out, "emptied by compaction", MemoryRecords.readableRecords(empty));
        MemoryRecordsBuilder append = MemoryRecords.builder(ByteBuffer.allocate(512), RecordBatch.MAGIC_VALUE_V2, Compression.NONE, TimestampType.LOG_APPEND_TIME, 0, 1_700_000_000_500L);
        append.setProducerState(4711, (short) 3, 10, false);
        append.append(records(1)[0]);
        batch(out, "log append time", append.build());
        out.flush();
    }

    private static void batch(PrintStream out, String name, MemoryRecords records) {
        MutableRecordBatch batch = records.batches().iterator().next();
        DefaultRecordBatch v2 = (DefaultRecordBatch) batch;
        ObjectNode fields = NODES.objectNode();
        fields.put("producer", batch.producerId()).put("epoch", batch.producerEpoch()).put("first", batch.baseSequence()).put("last", batch.lastSequence());
        fields.put("last_offset_delta", (int) (batch.lastOffset() - batch.baseOffset())).put("records", v2.countOrNull()).put("crc", v2.checksum());
        fields.put("size", batch.sizeInBytes()).put("magic", batch.magic()).put("compression", batch.compressionType().name);
        fields.put("transactional", batch.isTransactional()).put("control", batch.isControlBatch());
        fields.put("max_timestamp", batch.maxTimestamp()).put("timestamp_type", batch.timestampType().name);
        ObjectNode line = NODES.objectNode();
        line.put("batch", name).set("fields", fields);
        out.println(line.put("hex", HexFormat.of().formatHex(bytes(records))));
    }

    private static MemoryRecords idempotent(Compression compression, long producer, short epoch, int sequence, int count) {
        return MemoryRecords.withIdempotentRecords(compression, producer, epoch, sequence, records(count));
    }

    private static SimpleRecord[] records(int count) {
        SimpleRecord[] records = new SimpleRecord[count];
        for (int i = 0; i < count; i++) records[i] = new SimpleRecord(1_700_000_000_000L + i, ("key-" + i % 3).getBytes(), ("value-" + i).getBytes());
        return records;
    }

    private static byte[] bytes(MemoryRecords records) {
        ByteBuffer buffer = records.buffer().duplicate();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    // --- append decisions: as UnifiedLog.analyzeAndValidateProducerState takes them, for one producer ---

    private static final int SCENARIOS = 300;

    private static void decisions(PrintStream out) throws Exception {
        for (int seed = 0; seed < SCENARIOS; seed++) {
            Random random = new Random(seed);
            File dir = Files.createTempDirectory("golden").toFile();
            TopicPartition partition = new TopicPartition("t", 0);
            ProducerStateManager manager = new ProducerStateManager(partition, dir, 900_000, new ProducerStateManagerConfig(86_400_000, false), Time.SYSTEM);
            ArrayNode steps = NODES.arrayNode();
            List<int[]> seen = new ArrayList<>();
            int epoch = seed % 10 == 9 ? random.nextInt(3) - 2 : random.nextInt(3), last = start(random, seed);
            long offset = 0;
            int length = 12 + random.nextInt(14);
            for (int i = 0; i < length; i++) {
                int e = epoch, first = inc(last, 1), count = 1 + random.nextInt(4), kind = random.nextInt(20);
                if (kind < 5 && !seen.isEmpty()) { // what was sent before, or something near it
                    int[] old = seen.get(Math.max(0, seen.size() - 1 - random.nextInt(8)));
                    e = old[0]; first = old[1]; count = old[2];
                    if (kind == 3) count = 1 + random.nextInt(5);
                    if (kind == 4) first = inc(first, random.nextInt(3));
                } else if (kind == 5) first = inc(first, 1 + random.nextInt(3));
                else if (kind == 6) e = epoch - 1;
                else if (kind == 7) { e = epoch + 1 + random.nextInt(2); first = 0; }
                else if (kind == 8) e = epoch + 1;
                else if (kind == 9) first = 0;
                else if (kind == 10 && random.nextInt(4) == 0) e = Short.MIN_VALUE;
                MemoryRecords records = idempotent(Compression.NONE, 1, (short) 0, first, count);
                records.buffer().putShort(51, (short) e); // the builder refuses negative epochs, a broker does not; no checksum is read here
                MutableRecordBatch batch = records.batches().iterator().next();
                ArrayNode step = steps.addArray().add(e).add(first).add(batch.lastSequence());
                seen.add(new int[] {e, first, count});
                Optional<BatchMetadata> duplicate = duplicate(manager, batch);
                if (duplicate.isPresent()) {
                    step.add("duplicate").add(duplicate.get().firstOffset());
                    continue;
                }
                batch.setLastOffset(offset + count - 1);
                try {
                    ProducerAppendInfo info = manager.prepareUpdate(1, AppendOrigin.CLIENT);
                    info.append(batch, Optional.of(new LogOffsetMetadata(offset)));
                    manager.update(info);
                } catch (Exception refused) {
                    step.add("error").add(Errors.forException(refused).code());
                    continue;
                }
                step.add("accepted").add(offset);
                offset += count;
                manager.updateMapEndOffset(offset);
                epoch = e;
                last = batch.lastSequence();
            }
            ObjectNode line = NODES.objectNode();
            out.println(line.put("scenario", seed).set("steps", steps));
            dir.delete();
        }
        out.flush();
    }

    private static int start(Random random, int seed) {
        if (seed % 3 == 0) return -1;
        return seed % 3 == 1 ? Integer.MAX_VALUE - random.nextInt(12) : random.nextInt(1000);
    }

    private static int inc(int sequence, int by) {
        return (int) (((long) sequence + by) & Integer.MAX_VALUE);
    }

    @SuppressWarnings("unchecked")
    private static Optional<BatchMetadata> duplicate(ProducerStateManager manager, RecordBatch batch) throws Exception {
        Optional<ProducerStateEntry> entry = manager.lastEntry(1);
        if (entry.isEmpty()) return Optional.empty();
        return (Optional<BatchMetadata>) method(ProducerStateEntry.class, "findDuplicateBatch", RecordBatch.class).invoke(entry.get(), batch);
    }

    private static Method method(Class<?> of, String name, Class<?>... parameters) throws Exception {
        Method method = of.getDeclaredMethod(name, parameters);
        method.setAccessible(true);
        return method;
    }
}
