import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import javax.security.auth.callback.Callback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.*;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Java's producer over SASL: HOST:PORT CA-FILE. Each line of standard input is a login with tabs
 * between its parts, TOPIC MECHANISM NAME SECRET; each line of output what became of it.
 */
public class SecuredKafka {
    /** Gives the token that the program was started with. */
    public static class Handler implements AuthenticateCallbackHandler {
        static volatile String name, token;
        public void configure(Map<String, ?> c, String mechanism, List<AppConfigurationEntry> e) {}
        public void close() {}
        public void handle(Callback[] callbacks) {
            for (Callback callback : callbacks)
                if (callback instanceof OAuthBearerTokenCallback) ((OAuthBearerTokenCallback) callback).token(
                    new OAuthBearerToken() {
                        public String value() { return token; }
                        public Set<String> scope() { return Set.of(); }
                        public long lifetimeMs() { return System.currentTimeMillis() + 3600000; }
                        public String principalName() { return name; }
                        public Long startTimeMs() { return System.currentTimeMillis(); }
                    });
        }
    }

    static String jaas(String mechanism, String name, String secret) {
        String common = "org.apache.kafka.common.security.";
        if (mechanism.equals("OAUTHBEARER"))
            return common + "oauthbearer.OAuthBearerLoginModule required;";
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        return common + module + " required username=\"" + name + "\" password=\"" + secret + "\";";
    }

    static String comeIn(String address, String ca, String[] args) throws Exception {
        Handler.name = args[2];
        Handler.token = args[3];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("security.protocol", "SASL_SSL");
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", ca);
        settings.put("sasl.mechanism", args[1]);
        settings.put("sasl.jaas.config", jaas(args[1], args[2], args[3]));
        settings.put("max.block.ms", "20000");
        if (args[1].equals("OAUTHBEARER"))
            settings.put("sasl.login.callback.handler.class", Handler.class.getName());
        StringSerializer text = new StringSerializer();
        try (Producer<String, String> producer = new KafkaProducer<>(settings, text, text)) {
            producer.send(new ProducerRecord<>(args[0], "hello")).get();
            return "came in";
        }
        catch (ExecutionException | KafkaException error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            return "refused " + cause.getClass().getSimpleName();
        }
    }

    public static void main(String[] args) throws Exception {
        for (String line : new String(System.in.readAllBytes(), StandardCharsets.UTF_8).lines().toList())
            System.out.println(comeIn(args[0], args[1], line.split("\t")));
        System.exit(0);
    }
}
