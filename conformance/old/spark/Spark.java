import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import kafka.serializer.StringDecoder;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.function.VoidFunction;
import org.apache.spark.storage.StorageLevel;
import org.apache.spark.streaming.Durations;
import org.apache.spark.streaming.api.java.JavaStreamingContext;
import org.apache.spark.streaming.kafka.KafkaUtils;
import scala.Tuple2;

/** A stream of Spark 1.6 with a receiver: `Spark ZOOKEEPER TOPIC GROUP COUNT`. */
public class Spark {
    static final AtomicInteger left = new AtomicInteger();

    /** Writes the values of a batch. */
    static class Writer implements VoidFunction<JavaPairRDD<String, String>> {
        public void call(JavaPairRDD<String, String> batch) {
            for (Tuple2<String, String> record : batch.collect()) {
                System.out.println(record._2());
                left.decrementAndGet();
            }
        }
    }

    public static void main(String[] args) throws Exception {
        // Scala 2.10 reads no Java version without a dot.
        System.setProperty("java.specification.version", "1.8");
        left.set(Integer.parseInt(args[3]));
        SparkConf settings = new SparkConf().setMaster("local[2]").setAppName("old")
            .set("spark.ui.enabled", "false").set("spark.driver.host", "127.0.0.1");
        JavaStreamingContext context =
            new JavaStreamingContext(settings, Durations.milliseconds(500));
        Map<String, String> consumer = new HashMap<String, String>();
        consumer.put("zookeeper.connect", args[0]);
        consumer.put("zookeeper.connection.timeout.ms", "30000");
        consumer.put("group.id", args[2]);
        consumer.put("auto.offset.reset", "smallest");
        KafkaUtils.createStream(context, String.class, String.class, StringDecoder.class,
            StringDecoder.class, consumer, Collections.singletonMap(args[1], 1),
            StorageLevel.MEMORY_ONLY()).foreachRDD(new Writer());
        context.start();
        while (left.get() > 0) Thread.sleep(100);
        context.stop(true, true);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
