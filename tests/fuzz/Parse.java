import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.ResponseHeader;

/**
 * Reads frames as Kafka's own client does: lines of "request" or "response", api key, version, and the frame in
 * hexadecimal. For each it prints a line: the message as JSON, a tab, and the bytes that it writes for that message.
 */
public class Parse {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            ApiKeys api = ApiKeys.forId(Integer.parseInt(words[1]));
            short version = Short.parseShort(words[2]);
            ByteBuffer frame = ByteBuffer.wrap(HexFormat.of().parseHex(words[3]));
            ApiMessage message = words[0].equals("request") ? request(api, version, frame) : response(api, version, frame);
            if (frame.hasRemaining()) {
                throw new IllegalStateException(frame.remaining() + " bytes are left of " + line);
            }
            byte[] written = MessageUtil.toByteBufferAccessor(message, version).buffer().array();
            out.println(json(message, version) + "\t" + HexFormat.of().formatHex(written));
        }
        out.flush();
    }

    private static ApiMessage request(ApiKeys api, short version, ByteBuffer frame) {
        RequestHeader header = RequestHeader.parse(frame);
        if (header.apiKey() != api || header.apiVersion() != version) {
            throw new IllegalStateException("the header says " + header);
        }
        return AbstractRequest.parseRequest(api, version, new ByteBufferAccessor(frame)).request.data();
    }

    private static ApiMessage response(ApiKeys api, short version, ByteBuffer frame) {
        ResponseHeader.parse(frame, api.responseHeaderVersion(version));
        return AbstractResponse.parseResponse(api, new ByteBufferAccessor(frame), version).data();
    }

    private static JsonNode json(ApiMessage message, short version) throws Exception {
        Class<?> type = message.getClass();
        Method write = Class.forName(type.getName() + "JsonConverter").getMethod("write", type, short.class);
        return (JsonNode) write.invoke(null, message, version);
    }
}
