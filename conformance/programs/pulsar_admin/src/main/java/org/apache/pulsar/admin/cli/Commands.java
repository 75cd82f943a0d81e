package org.apache.pulsar.admin.cli;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.pulsar.client.cli.PulsarClientTool;
import picocli.CommandLine;

/** Runs lines of pulsar-admin from standard input, and prints a JSON object per line: whether the line succeeded, and its text.
 *  The first output line lists every command of the tool. Arguments: Pulsar's HOST:PORT, the URL of the HTTP listener.
 *  The word LEDGER stands for the ledger of the last printed id. In the tool's package as Check is. */
public class Commands {
    private static final PrintStream OUT = System.out;
    private static final long CALL_MS = 60_000;
    private static final Pattern ID = Pattern.compile("\"ledgerId\" : (\\d+)|^(\\d+):\\d+");
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.setProperty("webServiceUrl", args[1]);
        settings.setProperty("brokerServiceUrl", "pulsar://" + args[0]);
        PulsarAdminTool.setAllowSystemExit(false);
        PulsarAdminTool admin = new PulsarAdminTool(settings);
        Map<String, Object> names = new LinkedHashMap<>();
        for (Map.Entry<String, CommandLine> group : admin.commander.getSubcommands().entrySet()) {
            Set<String> commands = new TreeSet<>();  // Without aliases.
            group.getValue().getSubcommands().values().forEach(command -> commands.add(command.getCommandName()));
            names.put(group.getKey(), commands);
        }
        OUT.println(JSON.writeValueAsString(names));
        String ledger = "0";
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, Object> answer = run(admin, settings, line.replace("LEDGER", ledger).split(" "));
            if (line.startsWith("topics last-message-id")) {
                Matcher id = ID.matcher((String) answer.get("text"));
                ledger = id.find() ? (id.group(1) == null ? id.group(2) : id.group(1)) : ledger;
            }
            OUT.println(JSON.writeValueAsString(answer));
            OUT.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static Map<String, Object> run(PulsarAdminTool admin, Properties settings, String[] words) throws InterruptedException {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(printed, true, StandardCharsets.UTF_8);
        PrintStream err = System.err;
        System.setOut(stream);
        System.setErr(stream);
        admin.commander.setOut(new PrintWriter(stream, true)).setErr(new PrintWriter(stream, true));
        AtomicBoolean succeeded = new AtomicBoolean();
        Thread thread = new Thread(() -> {
            try {
                if (words[0].equals("client")) {
                    String[] rest = java.util.Arrays.copyOfRange(words, 1, words.length);
                    succeeded.set(new PulsarClientTool(settings).run(rest) == 0);
                } else {
                    succeeded.set(admin.run(words));
                }
            } catch (Exception error) {
                error.printStackTrace(stream);
            }
        });
        thread.setDaemon(true);
        thread.start();
        thread.join(CALL_MS);
        if (thread.isAlive()) {
            stream.println("no end within a minute");
        }
        System.setOut(OUT);
        System.setErr(err);
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("line", String.join(" ", words));
        answer.put("ok", succeeded.get());
        answer.put("text", printed.toString(StandardCharsets.UTF_8));
        return answer;
    }
}
