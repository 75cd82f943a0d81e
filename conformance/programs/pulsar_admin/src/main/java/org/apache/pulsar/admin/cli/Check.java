package org.apache.pulsar.admin.cli;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.pulsar.client.cli.PulsarClientTool;

/** The command-line tools pulsar-admin and pulsar-client, call by call; a line each. Arguments: Pulsar's HOST:PORT, the URL
 *  of the HTTP listener. In the tool's package, because only there a call may end without ending the process. */
public class Check {
    private static final PrintStream OUT = System.out;
    private static final long CALL_MS = 60_000;
    private static PulsarAdminTool admin;
    private static Properties settings;
    private static boolean failed;
    private static boolean compacts = true;  // Not over a shared store, which says so.

    public static void main(String[] args) throws Exception {
        settings = new Properties();
        settings.setProperty("webServiceUrl", args[1]);
        settings.setProperty("brokerServiceUrl", "pulsar://" + args[0]);
        PulsarAdminTool.setAllowSystemExit(false);
        admin = new PulsarAdminTool(settings);
        clusters();
        namespaces();
        topics();
        messages();
        schemas();
        policies();
        OUT.flush();
        Runtime.getRuntime().halt(failed ? 1 : 0);
    }

    private static void clusters() {
        call("standalone", "clusters list");
        call("brokerServiceUrl", "clusters get standalone");
        call("127", "brokers list standalone");
        call("[oO][kK]", "brokers healthcheck");
        call("\\d", "brokers version");
        call("public", "tenants list");
        call("", "tenants create shop --admin-roles clerk --allowed-clusters standalone");
        refused("already", "tenants create shop --allowed-clusters standalone");
        call("standalone", "tenants get shop");
        call("", "tenants update shop --admin-roles clerk,boss --allowed-clusters standalone");
        call("boss", "tenants get shop");
    }

    private static void namespaces() {
        call("", "namespaces create shop/cash");
        call("shop/cash", "namespaces list shop");
        call("clusters|replication|bundles", "namespaces policies shop/cash");
        call("", "namespaces delete shop/cash");
        refused("(?i)does not exist", "namespaces policies shop/cash");
        call("", "tenants delete shop");
    }

    private static void topics() {
        call("", "topics create one");
        refused("already", "topics create one");
        call("public/default/one", "topics list public/default");
        call("", "topics create-partitioned-topic parts -p 2");
        call("public/default/parts", "topics list-partitioned-topics public/default");
        call("\"partitions\" : 2", "topics get-partitioned-topic-metadata parts");
        call("", "topics update-partitioned-topic parts -p 3");
        call("parts-partition-2", "topics partitioned-stats parts --per-partition");
        call("pulsar://", "topics lookup one");
        call("parts-partition-2", "topics partitioned-lookup parts");
        call("", "topics unload one");
        call("", "namespaces unload public/default");
        call("", "topics delete-partitioned-topic parts");
        call("", "topics delete one");
        refused("no topic|not found", "topics stats one");
    }

    private static void messages() {
        call("", "topics create-subscription talk -s early -m earliest");
        call("", true, "produce talk -m a,b,c,d,e -k key");
        call("early", "topics subscriptions talk");
        call("\"msgBacklog\" : 5", "topics stats talk");
        call("lastConfirmedEntry", "topics stats-internal talk");
        String last = call("ledgerId|\\d+:\\d+", "topics last-message-id talk");
        String ledger = group(last, "\"ledgerId\" : (\\d+)|(\\d+):\\d+");
        call("00000000. 61", "topics peek-messages talk -s early -n 2");
        call("\\bb\\b|62 ", "topics get-message-by-id talk -l " + ledger + " -e 1");
        call(ledger, "topics get-message-id talk -d 2001-01-01T00:00:00Z");
        call("", "topics skip talk -s early -n 2");
        call("\"msgBacklog\" : 3", "topics stats talk");
        call("", "topics reset-cursor talk -s early -m " + ledger + ":1");
        call("\"msgBacklog\" : 4", "topics stats talk");
        call("", "topics reset-cursor talk -s early -t 1h");
        call("\"msgBacklog\" : 5", "topics stats talk");
        call("", "topics clear-backlog talk -s early");
        call("\"msgBacklog\" : 0", "topics stats talk");
        call("", "topics reset-cursor talk -s early -t 1h");
        call("content:e", true, "consume talk -s early -n 5");
        refused("nothing is that old|no expired|expire", "topics expire-messages talk -s early -t 3600");
        call("", "topics reset-cursor talk -s early -t 1h");
        call("", "topics truncate talk");
        call("\"msgBacklog\" : 0", "topics stats talk");
        call("", "topics unsubscribe talk -s early");
        call("", "topics compact talk");
        call("(?i)compaction", "topics compaction-status talk -w");
        call("", "topics terminate talk");
        refused("", true, "produce talk -m f");
        call("", "topics delete talk -f");
    }

    private static void schemas() {
        String file = write("{\"type\": \"JSON\", \"schema\": \"{\\\"type\\\":\\\"record\\\",\\\"name\\\":\\\"Item\\\",\\\"fields\\\":"
            + "[{\\\"name\\\":\\\"count\\\",\\\"type\\\":\\\"int\\\"}]}\", \"properties\": {}}");
        call("", "topics create items");
        call("", "schemas upload items -f " + file);
        call("JSON", "schemas get items");
        call("JSON", "schemas get items --version 0");
        call("JSON", "schemas get items --all-version");
        call("", "schemas compatibility items -f " + file);
        call("", "schemas delete items");
        refused("(?i)no schema|not found", "schemas get items");
        call("", "topics delete items");
    }

    private static void policies() {
        String ns = " public/default";
        call("", "namespaces set-deduplication" + ns + " --enable");
        call("true", "namespaces get-deduplication" + ns);
        call("", "namespaces remove-deduplication" + ns);
        call("", "namespaces set-schema-compatibility-strategy" + ns + " -c FORWARD");
        call("FORWARD", "namespaces get-schema-compatibility-strategy" + ns);
        call("", "namespaces set-retention" + ns + " -t 60m -s 100M");
        call("60", "namespaces get-retention" + ns);
        call("", "namespaces remove-retention" + ns);
        call("", "namespaces set-message-ttl" + ns + " -ttl 10m");
        call("600", "namespaces get-message-ttl" + ns);
        call("", "namespaces remove-message-ttl" + ns);
        call("", "namespaces set-backlog-quota" + ns + " -l 1G -p producer_exception");
        call("producer_exception", "namespaces get-backlog-quotas" + ns);
        call("", "namespaces remove-backlog-quota" + ns);
        call("", "namespaces set-compaction-threshold" + ns + " -t 10M");
        if (compacts) call("10485760", "namespaces get-compaction-threshold" + ns);
        call("", "namespaces remove-compaction-threshold" + ns);
        call("", "namespaces grant-permission" + ns + " --role clerk --actions produce,consume");
        call("", "topics create ruled");
        call("", "topicPolicies set-retention ruled -t 5m -s 10M");
        call("5", "topicPolicies get-retention ruled");
        call("", "topicPolicies remove-retention ruled");
        call("", "topicPolicies set-message-ttl ruled -t 60");
        call("60", "topicPolicies get-message-ttl ruled");
        call("", "topicPolicies remove-message-ttl ruled");
        call("", "topicPolicies set-backlog-quota ruled -l 10M -p producer_request_hold");
        call("producer_request_hold", "topicPolicies get-backlog-quota ruled");
        call("", "topicPolicies remove-backlog-quota ruled");
        call("", "topicPolicies set-deduplication ruled --enable");
        call("true", "topicPolicies get-deduplication ruled");
        call("", "topicPolicies remove-deduplication ruled");
        call("", "topics delete ruled");
    }

    // One call.

    private static String call(String expected, String line) {
        return call(expected, false, line);
    }

    private static String call(String expected, boolean isClient, String line) {
        return done(expected, isClient, line, true);
    }

    private static void refused(String expected, String line) {
        refused(expected, false, line);
    }

    private static void refused(String expected, boolean isClient, String line) {
        done(expected, isClient, line, false);
    }

    /** Run a line of the tool; what it printed has to hold the pattern. */
    private static String done(String expected, boolean isClient, String line, boolean succeeds) {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(printed, true, StandardCharsets.UTF_8);
        PrintStream err = System.err;
        System.setOut(stream);
        System.setErr(stream);
        admin.commander.setOut(new PrintWriter(stream, true)).setErr(new PrintWriter(stream, true));
        boolean succeeded = runs(line.split(" "), isClient, stream);
        System.setOut(OUT);
        System.setErr(err);
        String said = printed.toString(StandardCharsets.UTF_8);
        boolean good = succeeded == succeeds && Pattern.compile(expected).matcher(said).find();
        if (said.contains("compaction is not possible over a shared store")) {
            compacts = false;
            good = true;
        }
        String name = (isClient ? "pulsar-client " : "pulsar-admin ") + line.replaceAll("/\\S*check\\S*", "FILE");
        OUT.println((good ? "ok " : "FAILED ") + name + (good ? "" : ": " + said.strip().replace('\n', '|')));
        failed |= !good;
        return said;
    }

    /** Whether a line of the tool succeeds, in time. */
    private static boolean runs(String[] words, boolean isClient, PrintStream stream) {
        AtomicBoolean succeeded = new AtomicBoolean();
        Thread thread = new Thread(() -> {
            try {
                succeeded.set(isClient ? new PulsarClientTool(settings).run(words) == 0 : admin.run(words));
            } catch (Exception error) {
                error.printStackTrace(stream);
            }
        });
        thread.setDaemon(true);
        thread.start();
        try {
            thread.join(CALL_MS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        if (thread.isAlive()) {
            stream.println("no end within a minute");
        }
        return succeeded.get();
    }

    private static String group(String said, String pattern) {
        Matcher found = Pattern.compile(pattern).matcher(said);
        if (!found.find()) {
            return "-1";
        }
        return found.group(1) == null ? found.group(2) : found.group(1);
    }

    private static String write(String text) {
        try {
            Path file = Files.createTempFile("check", ".json");
            Files.writeString(file, text);
            return file.toString();
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }
}
