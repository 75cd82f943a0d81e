import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;

/** Counts the records of a topic by their value modulo 7: `Count ADDRESS FOLDER IN OUT`. */
public class Count {
    public static void main(String[] arguments) throws InterruptedException {
        Properties settings = new Properties();
        String text = Serdes.StringSerde.class.getName();
        settings.put("application.id", "count");
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("state.dir", arguments[1]);
        settings.put("commit.interval.ms", "500");
        settings.put("auto.offset.reset", "earliest");
        settings.put("default.key.serde", text);
        settings.put("default.value.serde", text);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[2])
                .groupBy((key, value) -> "k" + Integer.parseInt(value) % 7)
                .count()
                .toStream()
                .mapValues(String::valueOf)
                .to(arguments[3]);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(
                error -> {
                    error.printStackTrace();
                    return StreamThreadExceptionResponse.SHUTDOWN_APPLICATION;
                });
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime()
                .addShutdownHook(
                        new Thread(
                                () -> {
                                    streams.close();
                                    ended.countDown();
                                }));
        streams.start();
        ended.await();
    }
}
