import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.impl.auth.AuthenticationBasic;

/**
 * Java's client at a broker that asks who it is: HOST:PORT CA-FILE. Each line of standard input is a
 * login with tabs between its parts, TOPIC WAY MORE ...; each line of output what became of one, in order.
 */
public class Secured {
    static final AtomicInteger asked = new AtomicInteger();

    /** A token of HS256 for that name, which runs out so soon. */
    static String signed(String secretFile, String name, int seconds) {
        try {
            Base64.Encoder text = Base64.getUrlEncoder().withoutPadding();
            long until = System.currentTimeMillis() / 1000 + seconds;
            String claims = "{\"sub\":\"" + name + "\",\"exp\":" + until + "}";
            String said = text.encodeToString("{\"alg\":\"HS256\"}".getBytes(StandardCharsets.UTF_8))
                + "." + text.encodeToString(claims.getBytes(StandardCharsets.UTF_8));
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(Files.readAllBytes(Path.of(secretFile)), "HmacSHA256"));
            asked.incrementAndGet();
            return said + "." + text.encodeToString(mac.doFinal(said.getBytes(StandardCharsets.UTF_8)));
        }
        catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    static Authentication by(String[] args) throws Exception {
        switch (args[1]) {
        case "token": return AuthenticationFactory.token(args[2]);
        case "supplier": return AuthenticationFactory.token(() -> signed(args[2], args[3], 2));
        case "tls": return AuthenticationFactory.TLS(args[2], args[3]);
        case "basic":
            AuthenticationBasic basic = new AuthenticationBasic();
            basic.configure(Map.of("userId", args[2], "password", args[3]));
            return basic;
        default: throw new IllegalArgumentException(args[1]);
        }
    }

    static String comeIn(String address, String ca, String[] args) throws Exception {
        ClientBuilder builder = PulsarClient.builder().serviceUrl("pulsar+ssl://" + address)
            .tlsTrustCertsFilePath(ca).authentication(by(args))
            .operationTimeout(20, TimeUnit.SECONDS).lookupTimeout(20, TimeUnit.SECONDS);
        try (PulsarClient client = builder.build()) {
            Producer<byte[]> producer = client.newProducer().topic(args[0]).create();
            producer.send("before".getBytes(StandardCharsets.UTF_8));
            int first = asked.get();
            for (int i = 0; args[1].equals("supplier") && asked.get() == first; i++) {
                if (i == 900) return "no fresh token was asked for";
                Thread.sleep(100);
            }
            producer.send("after".getBytes(StandardCharsets.UTF_8));
            return "came in";
        }
        catch (PulsarClientException error) {
            return "refused " + error.getClass().getSimpleName();
        }
    }

    public static void main(String[] args) throws Exception {
        List<CompletableFuture<String>> results = new ArrayList<>();
        for (String line : new String(System.in.readAllBytes(), StandardCharsets.UTF_8).lines().toList())
            results.add(CompletableFuture.supplyAsync(() -> {
                try {
                    return comeIn(args[0], args[1], line.split("\t"));
                }
                catch (Exception error) {
                    return error.toString();
                }
            }, command -> new Thread(command).start()));
        for (CompletableFuture<String> result : results) System.out.println(result.get());
        System.exit(0);
    }
}
