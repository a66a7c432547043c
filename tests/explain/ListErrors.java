import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Prints each error of the protocol: code, name, exception, whether Kafka's client calls it retriable. */
public class ListErrors {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            if (error != Errors.NONE) {
                boolean retriable = error.exception() instanceof RetriableException;
                String exception = error.exception().getClass().getSimpleName();
                System.out.println(error.code() + " " + error.name() + " " + exception + " " + retriable);
            }
        }
    }
}
