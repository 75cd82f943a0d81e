import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.WebSocket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Produces, consumes and reads over WebSocket with the JDK's client; prints the payloads of each. */
public final class Dialogue {
    private static final Pattern FIELD = Pattern.compile("\"(messageId|payload|result)\":\"([^\"]*)\"");

    /** A connection, with the frames received. */
    private static final class Connection implements WebSocket.Listener {
        private final BlockingQueue<String> frames = new LinkedBlockingQueue<>();
        private final StringBuilder parts = new StringBuilder();
        private final WebSocket socket;

        Connection(String url) {
            socket = HttpClient.newHttpClient().newWebSocketBuilder().buildAsync(URI.create(url), this).join();
        }

        @Override
        public CompletionStage<?> onText(WebSocket from, CharSequence data, boolean last) {
            parts.append(data);
            if (last) {
                frames.add(parts.toString());
                parts.setLength(0);
            }
            from.request(1);
            return null;
        }

        void send(String text) {
            socket.sendText(text, true).join();
        }

        String field(String name) throws InterruptedException {
            return field(name, frames.poll(30, TimeUnit.SECONDS));
        }

        static String field(String name, String frame) {
            Matcher fields = FIELD.matcher(frame);
            while (fields.find()) {
                if (fields.group(1).equals(name)) {
                    return fields.group(2);
                }
            }
            throw new IllegalStateException("no " + name + " in " + frame);
        }

        List<String> take(int count) throws InterruptedException {
            List<String> payloads = new ArrayList<>();
            while (payloads.size() < count) {
                String frame = frames.poll(30, TimeUnit.SECONDS);
                payloads.add(new String(Base64.getDecoder().decode(field("payload", frame)), StandardCharsets.UTF_8));
                send("{\"messageId\":\"" + field("messageId", frame) + "\"}");
            }
            socket.sendClose(WebSocket.NORMAL_CLOSURE, "").join();
            return payloads;
        }
    }

    public static void main(String[] arguments) throws Exception {
        String url = arguments[0];
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        Connection consumer = new Connection(url + "/ws/v2/consumer/" + topic + "/java?subscriptionType=Shared");
        Connection producer = new Connection(url + "/ws/v2/producer/" + topic);
        for (int number = 0; number < count; number++) {
            byte[] payload = ("java " + number).getBytes(StandardCharsets.UTF_8);
            producer.send("{\"payload\":\"" + Base64.getEncoder().encodeToString(payload) + "\",\"key\":\"k\",\"context\":\"1\"}");
            if (!producer.field("result").equals("ok")) {
                throw new IllegalStateException("not stored");
            }
        }
        Connection reader = new Connection(url + "/ws/v2/reader/" + topic + "?messageId=earliest");
        System.out.println(String.join(",", consumer.take(count)));
        System.out.println(String.join(",", reader.take(count)));
        System.exit(0);
    }
}
