// Around the README's lines for Java: one record.
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public final class Java {
  public static void main(String[] args) throws Exception {
    Properties props = new Properties();
    // SNIPPET
    try (var producer = new KafkaProducer<>(props, new StringSerializer(), new StringSerializer())) {
      producer.send(new ProducerRecord<>("orders", "1")).get();
    }
  }
}
