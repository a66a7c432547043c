import java.time.Duration;
import java.util.*;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.SaslConfigs;
import org.apache.kafka.common.config.SslConfigs;
import org.apache.kafka.common.serialization.*;

/** The Java client of the tests; tests/clients/README.md has the command line and the output. */
public final class Client {
  private static final Map<String, String> options = new HashMap<>();
  private static volatile Target target;

  /** Where records go: what the command line says, until a line of the input names another topic. */
  private record Target(String topic, int partitions) {}

  public static void main(String[] args) throws Exception {
    for (int i = 1; i < args.length; i++) {
      boolean isFlag = i + 1 == args.length || args[i + 1].startsWith("--");
      options.put(args[i].substring(2), isFlag ? "true" : args[++i]);
    }
    switch (args[0]) {
      case "produce" -> produce();
      case "consume" -> consume();
      case "transact" -> transact();
      case "transactions" -> transactions();
      case "share" -> share();
      case "admin" -> admin();
      default -> throw new IllegalArgumentException("unknown operation " + args[0]);
    }
  }

  /** Whether the input has ended; its lines are followed until then. */
  private static AtomicBoolean inputEnd() {
    AtomicBoolean ended = new AtomicBoolean();
    target = new Target(topic(), number("partitions", 1));
    if (has("until-input-ends")) {
      Thread reader = new Thread(() -> {
        try (Scanner input = new Scanner(System.in)) {
          while (input.hasNextLine()) {
            String[] words = input.nextLine().split(" ");
            if (words[0].equals("topic")) target = new Target(words[1], Integer.parseInt(words[2]));
          }
        }
        ended.set(true);
      });
      reader.setDaemon(true);
      reader.start();
    }
    return ended;
  }

  /** Waits until it is time for the record after so many, at the asked rate. */
  private static void pace(int sent, long start) throws InterruptedException {
    int rate = number("rate", 0);
    long ahead = rate > 0 ? sent * 1_000_000_000L / rate - (System.nanoTime() - start) : 0;
    if (ahead > 0) java.util.concurrent.TimeUnit.NANOSECONDS.sleep(ahead);
  }

  private static ProducerRecord<byte[], String> record(int n) {
    Target to = target;
    Long time = has("age-ms") ? (Long) (System.currentTimeMillis() - number("age-ms", 0)) : null;
    return new ProducerRecord<>(to.topic, n % to.partitions, time, key(n), Integer.toString(n));
  }

  private static void produce() throws Exception {
    AtomicBoolean ended = inputEnd();
    AtomicInteger acked = new AtomicInteger();
    AtomicInteger failed = new AtomicInteger();
    int count = number("count", 0), sent = 0;
    long start = System.nanoTime();
    try (Producer<byte[], String> producer = new KafkaProducer<>(producerConfig())) {
      for (int n = number("first", 0); (count == 0 || sent < count) && !ended.get(); n++) {
        pace(sent, start);
        int number = n;
        producer.send(record(n), (metadata, error) -> {
          if (error != null) {
            failed.incrementAndGet();
            line("\"n\":" + number + ",\"error\":" + quoted(error.toString()));
          } else {
            acked.incrementAndGet();
            line("\"n\":" + number + place(metadata.partition(), metadata.offset()));
          }
        });
        sent++;
      }
      producer.flush();
    }
    line("\"sent\":" + sent + ",\"acked\":" + acked + ",\"failed\":" + failed);
    System.exit(failed.get() > 0 ? 1 : 0);
  }

  private static void consume() {
    Properties config = common();
    config.put(ConsumerConfig.GROUP_ID_CONFIG, options.get("group"));
    config.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
    config.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, has("read-committed") ? "read_committed" : "read_uncommitted");
    if (has("group-protocol")) config.put(ConsumerConfig.GROUP_PROTOCOL_CONFIG, options.get("group-protocol"));
    int count = number("count", 1), consumed = 0;
    long end = System.currentTimeMillis() + number("timeout-ms", 30000);
    try (Consumer<byte[], String> consumer =
        new KafkaConsumer<>(config, new ByteArrayDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of(topic()));
      while (consumed < count) {
        if (System.currentTimeMillis() > end) throw new IllegalStateException("gave up after " + consumed + " records");
        for (ConsumerRecord<byte[], String> record : consumer.poll(Duration.ofMillis(500))) {
          consumed++;
          line("\"n\":" + record.value() + place(record.partition(), record.offset()));
        }
      }
      consumer.commitSync();
    }
    line("\"consumed\":" + consumed);
  }

  /** Three transactions of --count records: committed, aborted, committed. */
  private static void transact() throws Exception {
    Properties config = producerConfig();
    config.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, options.get("transactional-id"));
    int count = number("count", 1), partitions = number("partitions", 1), n = number("first", 0);
    try (Producer<byte[], String> producer = new KafkaProducer<>(config)) {
      producer.initTransactions();
      for (boolean commits : new boolean[] {true, false, true}) {
        producer.beginTransaction();
        for (int i = 0; i < count; i++, n++) {
          RecordMetadata metadata =
              producer.send(new ProducerRecord<>(topic(), n % partitions, null, Integer.toString(n))).get();
          line("\"n\":" + n + place(metadata.partition(), metadata.offset()) + ",\"committed\":" + commits);
        }
        if (commits) producer.commitTransaction();
        else producer.abortTransaction();
      }
    }
    line("\"committed\":" + 2 * count + ",\"aborted\":" + count);
  }

  /** One transaction after another, each again until it is committed, or nobody can say whether it is. */
  private static void transactions() throws Exception {
    AtomicBoolean ended = inputEnd();
    int first = number("first", 0), size = number("count", 20), n = first;
    long start = System.nanoTime();
    Producer<byte[], String> producer = transactional();
    while (!ended.get()) {
      pace(n - first, start);
      List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
      boolean commits = false;
      try {
        producer.beginTransaction();
        for (int i = 0; i < size; i++) sent.add(producer.send(record(n + i)));
        producer.flush();
        for (java.util.concurrent.Future<RecordMetadata> each : sent) each.get();
        commits = true;
        producer.commitTransaction();
        for (int i = 0; i < size; i++, n++) line("\"n\":" + n + place(sent.get(i).get().partition(), sent.get(i).get().offset()));
      } catch (org.apache.kafka.common.KafkaException | java.util.concurrent.ExecutionException error) {
        line("\"aborted\":" + quoted(error.toString()));
        try {
          producer.abortTransaction();
        } catch (org.apache.kafka.common.KafkaException fatal) {
          line("\"fatal\":" + quoted(error + ", then " + fatal));
          producer.close(Duration.ZERO);
          producer = transactional();
          for (int i = 0; commits && i < size; i++, n++) line("\"n\":" + n + ",\"error\":\"committed or not\"");
        }
      }
    }
    producer.close();
    line("\"sent\":" + (n - first));
  }

  private static Producer<byte[], String> transactional() {
    Properties config = producerConfig();
    config.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, options.get("transactional-id"));
    Producer<byte[], String> producer = new KafkaProducer<>(config);
    producer.initTransactions();
    return producer;
  }

  private static void share() throws Exception {
    try (Admin admin = Admin.create(common())) {
      ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, options.get("group"));
      AlterConfigOp fromStart =
          new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
      admin.incrementalAlterConfigs(Map.of(resource, List.of(fromStart))).all().get();
    }
    Properties config = common();
    config.put(ConsumerConfig.GROUP_ID_CONFIG, options.get("group"));
    config.put(ConsumerConfig.SHARE_ACKNOWLEDGEMENT_MODE_CONFIG, "explicit");
    int count = number("count", 1), consumed = 0;
    long end = System.currentTimeMillis() + number("timeout-ms", 30000);
    try (ShareConsumer<byte[], String> consumer =
        new KafkaShareConsumer<>(config, new ByteArrayDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of(topic()));
      while (consumed < count) {
        if (System.currentTimeMillis() > end) throw new IllegalStateException("gave up after " + consumed + " records");
        for (ConsumerRecord<byte[], String> record : consumer.poll(Duration.ofMillis(500))) {
          consumed++;
          consumer.acknowledge(record, AcknowledgeType.ACCEPT);
          line("\"n\":" + record.value() + place(record.partition(), record.offset()));
        }
        for (Map.Entry<?, Optional<org.apache.kafka.common.KafkaException>> result : consumer.commitSync().entrySet()) {
          if (result.getValue().isPresent()) throw result.getValue().get();
        }
      }
    }
    line("\"consumed\":" + consumed);
  }

  private static void admin() throws Exception {
    try (Admin admin = Admin.create(common())) {
      int partitions = number("partitions", 1);
      admin.createTopics(List.of(new NewTopic(topic(), partitions, (short) number("replication", 1)))).all().get();
      line("\"step\":\"create_topic\"");
      for (int known = 0; known != partitions;) { // a node learns of a topic a moment after the controller
        try {
          known = admin.describeTopics(List.of(topic())).allTopicNames().get().get(topic()).partitions().size();
        } catch (java.util.concurrent.ExecutionException e) {
          if (!(e.getCause() instanceof org.apache.kafka.common.errors.UnknownTopicOrPartitionException)) throw e;
        }
      }
      line("\"step\":\"describe_topic\",\"partitions\":" + partitions);
      DescribeClusterResult cluster = admin.describeCluster();
      List<String> brokers = cluster.nodes().get().stream().map(node -> quoted(node.host() + ":" + node.port())).toList();
      line("\"step\":\"describe_cluster\",\"cluster\":" + quoted(cluster.clusterId().get()) + ",\"brokers\":" + brokers);
      ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic());
      int entries = admin.describeConfigs(List.of(resource)).all().get().get(resource).entries().size();
      line("\"step\":\"describe_configs\",\"entries\":" + entries);
      List<String> groups = admin.listGroups().all().get().stream().map(group -> quoted(group.groupId())).toList();
      line("\"step\":\"list_groups\",\"groups\":" + groups);
      admin.deleteTopics(List.of(topic())).all().get();
      line("\"step\":\"delete_topic\"");
    }
    line("\"steps\":6");
  }

  private static Properties common() {
    Properties config = new Properties();
    config.put(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
    config.put(CommonClientConfigs.CLIENT_ID_CONFIG, "java");
    secure(config, options.get("sasl-mechanism"));
    return config;
  }

  private static void secure(Properties config, String mechanism) {
    String transport = has("tls-ca") ? "SSL" : "PLAINTEXT";
    config.put(CommonClientConfigs.SECURITY_PROTOCOL_CONFIG, mechanism == null ? transport : "SASL_" + transport);
    if (has("tls-ca")) {
      config.put(SslConfigs.SSL_TRUSTSTORE_TYPE_CONFIG, "PEM");
      config.put(SslConfigs.SSL_TRUSTSTORE_CERTIFICATES_CONFIG, file("tls-ca"));
    }
    if (has("tls-cert")) {
      config.put(SslConfigs.SSL_KEYSTORE_TYPE_CONFIG, "PEM");
      config.put(SslConfigs.SSL_KEYSTORE_CERTIFICATE_CHAIN_CONFIG, file("tls-cert"));
      config.put(SslConfigs.SSL_KEYSTORE_KEY_CONFIG, file("tls-key"));
    }
    if (mechanism != null) {
      String user = options.get("sasl-user");
      String login = " required username=\"" + user + "\" password=\"" + options.get("sasl-password") + "\";";
      config.put(SaslConfigs.SASL_MECHANISM, mechanism);
      config.put(SaslConfigs.SASL_JAAS_CONFIG, "org.apache.kafka.common.security." + switch (mechanism) {
        case "PLAIN" -> "plain.PlainLoginModule" + login;
        case "OAUTHBEARER" -> "oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=\"" + user + "\";";
        default -> "scram.ScramLoginModule" + login;
      });
    }
  }

  private static Properties producerConfig() {
    Properties config = common();
    String backoff = Integer.toString(number("backoff-ms", 100));
    config.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
    config.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class);
    String idempotence = options.getOrDefault("idempotence", "true");
    if (!idempotence.equals("unset")) config.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, idempotence);
    if (has("acks")) config.put(ProducerConfig.ACKS_CONFIG, options.get("acks"));
    config.put(ProducerConfig.REQUEST_TIMEOUT_MS_CONFIG, number("request-timeout-ms", 30000));
    config.put(ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, number("delivery-timeout-ms", 120000));
    config.put(ProducerConfig.LINGER_MS_CONFIG, number("linger-ms", 0));
    config.put(ProducerConfig.BATCH_SIZE_CONFIG, number("batch-bytes", 16384));
    config.put(ProducerConfig.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION, number("in-flight", 5));
    config.put(ProducerConfig.RETRY_BACKOFF_MS_CONFIG, backoff);
    config.put(ProducerConfig.RETRY_BACKOFF_MAX_MS_CONFIG, backoff);
    config.put(ProducerConfig.RECONNECT_BACKOFF_MS_CONFIG, backoff);
    config.put(ProducerConfig.RECONNECT_BACKOFF_MAX_MS_CONFIG, backoff);
    config.put(ProducerConfig.MAX_BLOCK_MS_CONFIG, 120000);
    return config;
  }

  private static String topic() { return options.get("topic"); }

  private static byte[] key(int n) {
    return has("keys") ? ("msg-" + n).getBytes(java.nio.charset.StandardCharsets.UTF_8) : null;
  }

  private static String file(String name) {
    try {
      return java.nio.file.Files.readString(java.nio.file.Path.of(options.get(name)));
    } catch (java.io.IOException e) {
      throw new java.io.UncheckedIOException(e);
    }
  }

  private static boolean has(String name) { return options.containsKey(name); }

  private static int number(String name, int otherwise) {
    return has(name) ? Integer.parseInt(options.get(name)) : otherwise;
  }

  private static String place(int partition, long offset) { return ",\"partition\":" + partition + ",\"offset\":" + offset; }

  private static String quoted(String text) { return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"'; }

  private static synchronized void line(String members) { System.out.println("{" + members + "}"); }
}
