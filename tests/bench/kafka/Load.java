import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.tools.ProducerPerformance;

/**
 * The Java client of the benchmark: one warm JVM, which obeys a command a line, its words separated by tabs, and ends
 * each answer with the line "= ok" or "= failed: WHY".
 *
 *   create BOOTSTRAP TOPIC PARTITIONS REPLICAS   answers when every partition has a leader
 *   end BOOTSTRAP TOPIC PARTITIONS LEAST         prints "end=" and the sum of the end offsets, once it is LEAST
 *                                                or ten seconds have passed
 *   delete BOOTSTRAP TOPIC
 *   perf ARGUMENTS...                            Kafka's own ProducerPerformance with these arguments
 *   paced TOPIC RATE SECONDS BYTES COMMIT_MS PROPERTY=VALUE...
 *                                                records by the clock, a commit every COMMIT_MS if that is not 0
 */
public final class Load {
  private static final long SETTLE_MS = 60_000;
  private static final long REPLICATION_MS = 10_000;

  public static void main(String[] args) throws Exception {
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = commands.readLine()) != null; ) {
      String[] words = line.split("\t");
      try {
        run(words[0], Arrays.copyOfRange(words, 1, words.length));
        System.out.println("= ok");
      } catch (Exception e) {
        e.printStackTrace();
        System.out.println("= failed: " + e);
      }
      System.out.flush();
    }
  }

  private static void run(String command, String[] words) throws Exception {
    switch (command) {
      case "create" -> create(words[0], words[1], Integer.parseInt(words[2]), Short.parseShort(words[3]));
      case "end" -> end(words[0], words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]));
      case "delete" -> delete(words[0], words[1]);
      case "perf" -> ProducerPerformance.main(words);
      case "paced" -> paced(words);
      default -> throw new IllegalArgumentException("unknown command " + command);
    }
  }

  private static void create(String bootstrap, String topic, int partitions, short replicas) throws Exception {
    try (Admin admin = admin(bootstrap)) {
      // A deleted topic's files would otherwise lie on the disk for a minute.
      Map<String, String> options = Map.of("file.delete.delay.ms", "1000");
      admin.createTopics(List.of(new NewTopic(topic, partitions, replicas).configs(options))).all().get();
      long end = System.currentTimeMillis() + SETTLE_MS;
      while (!isLed(admin, topic, partitions, replicas)) {
        if (System.currentTimeMillis() > end) throw new IllegalStateException(topic + " has no leaders");
        Thread.sleep(20);
      }
      // The metadata names leaders a moment before they lead; this asks until they do.
      admin.listOffsets(newest(topic, partitions)).all().get();
    }
  }

  private static boolean isLed(Admin admin, String topic, int partitions, short replicas) throws Exception {
    try {
      TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
      return found.partitions().size() == partitions
          && found.partitions().stream().allMatch(p -> p.leader() != null && p.isr().size() == replicas);
    } catch (java.util.concurrent.ExecutionException e) {
      if (e.getCause() instanceof org.apache.kafka.common.errors.RetriableException) return false;
      throw e;
    }
  }

  private static void end(String bootstrap, String topic, int partitions, long least) throws Exception {
    try (Admin admin = admin(bootstrap)) {
      long until = System.currentTimeMillis() + REPLICATION_MS, sum;
      do {
        Collection<ListOffsetsResultInfo> found = admin.listOffsets(newest(topic, partitions)).all().get().values();
        sum = found.stream().mapToLong(ListOffsetsResultInfo::offset).sum();
      } while (sum < least && System.currentTimeMillis() < until);
      System.out.println("end=" + sum);
    }
  }

  private static Map<TopicPartition, OffsetSpec> newest(String topic, int partitions) {
    return IntStream.range(0, partitions)
        .mapToObj(partition -> new TopicPartition(topic, partition))
        .collect(Collectors.toMap(Function.identity(), partition -> OffsetSpec.latest()));
  }

  private static void delete(String bootstrap, String topic) throws Exception {
    try (Admin admin = admin(bootstrap)) {
      admin.deleteTopics(List.of(topic)).all().get();
    }
  }

  private static Admin admin(String bootstrap) {
    return Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap));
  }

  /** What became of each record; a slot a record, written by the client's one sending thread. */
  private static final class Outcomes {
    final long[] latencies;
    final AtomicInteger failed = new AtomicInteger();

    Outcomes(int count) {
      latencies = new long[count];
    }

    double microseconds(double quantile) {
      long[] sorted = latencies.clone();
      Arrays.sort(sorted);
      return sorted[(int) Math.min(sorted.length - 1, Math.round(quantile * sorted.length))] / 1e3;
    }
  }

  /** A latency counts from when the record was due, so that a stalled producer cannot hide behind records it did not send. */
  private static void paced(String[] words) throws Exception {
    String topic = words[0];
    int rate = Integer.parseInt(words[1]), count = rate * Integer.parseInt(words[2]);
    byte[] value = new byte[Integer.parseInt(words[3])];
    long commit = TimeUnit.MILLISECONDS.toNanos(Long.parseLong(words[4])), begun = 0;
    Outcomes outcomes = new Outcomes(count);
    long late = 0;
    try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties(words, 5))) {
      if (commit > 0) producer.initTransactions();
      // Topic and connections are known before the first record is due.
      producer.partitionsFor(topic);
      new java.util.Random(1).nextBytes(value);
      long start = System.nanoTime();
      boolean open = false;
      for (int n = 0; n < count; n++) {
        long due = start + n * 1_000_000_000L / rate;
        await(due);
        if (commit > 0 && !open) {
          producer.beginTransaction();
          open = true;
          begun = System.nanoTime();
        }
        late = Math.max(late, System.nanoTime() - due);
        int slot = n;
        producer.send(new ProducerRecord<>(topic, value), (metadata, error) -> {
          outcomes.latencies[slot] = System.nanoTime() - due;
          if (error != null) outcomes.failed.incrementAndGet();
        });
        if (open && System.nanoTime() - begun >= commit) {
          producer.commitTransaction();
          open = false;
        }
      }
      if (open) producer.commitTransaction();
      producer.flush();
      producer.metrics().forEach((name, metric) -> {
        if (name.group().equals("producer-metrics")) {
          System.out.println(name.group() + ":" + name.name() + ":{} : " + metric.metricValue());
        }
      });
    }
    System.out.printf(
        java.util.Locale.ROOT, "sent=%d failed=%d p50=%.0f p99=%.0f p999=%.0f late=%d%n", count,
        outcomes.failed.get(), outcomes.microseconds(0.5), outcomes.microseconds(0.99), outcomes.microseconds(0.999),
        late / 1000);
  }

  private static void await(long due) {
    for (long ahead; (ahead = due - System.nanoTime()) > 0; ) LockSupport.parkNanos(ahead);
  }

  private static Properties properties(String[] words, int from) {
    Properties properties = new Properties();
    for (int i = from; i < words.length; i++) {
      String[] pair = words[i].split("=", 2);
      properties.put(pair[0], pair[1]);
    }
    properties.put("key.serializer", ByteArraySerializer.class.getName());
    properties.put("value.serializer", ByteArraySerializer.class.getName());
    return properties;
  }
}
