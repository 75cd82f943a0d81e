// Kafka's own producer with its default settings, which are idempotent: sends PREFIX:NUMBER to one
// of the topics after the other until standard input ends. Each answer is a line of output:
// "VALUE OFFSET", or "VALUE ! ERROR".

import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Numbered {
    static volatile boolean stops = false;

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("linger.ms", "5");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        settings.put("metadata.max.age.ms", args[4]);
        String[] topics = args[1].split(",");
        String prefix = args[2];
        long pauseMs = Long.parseLong(args[3]);
        Thread end = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (java.io.IOException error) {
                System.err.println(error);
            }
            stops = true;
        });
        end.setDaemon(true);
        end.start();
        try (var producer = new KafkaProducer<byte[], byte[]>(settings)) {
            for (int number = 0; !stops; number++) {
                String value = prefix + ":" + number;
                byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
                producer.send(new ProducerRecord<>(topics[number % topics.length], 0, null, bytes), (place, error) -> {
                    synchronized (System.out) {
                        System.out.println(value + (error == null ? " " + place.offset() : " ! " + error));
                        System.out.flush();
                    }
                });
                Thread.sleep(pauseMs);
            }
        }
    }
}
