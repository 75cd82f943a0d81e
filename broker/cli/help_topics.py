"""The texts of `braidlog help TOPIC`, for subjects that several commands share.

Each says in short what docs/commands.md says at length.
"""

TOPICS = {
    "contexts": """\
A command asks the broker of --url, else of --context NAME, else of BRAIDLOG_URL, else of
BRAIDLOG_CONTEXT, else of the contexts file's default, else http://127.0.0.1:8080.

The login is in --token-file, BRAIDLOG_TOKEN, or BRAIDLOG_USER and BRAIDLOG_PASSWORD;
BRAIDLOG_CA_FILE names the CA of the broker's certificate.

~/.config/braidlog/contexts.toml, or the file that BRAIDLOG_CONTEXTS names:

    default = "local"
    [contexts.prod]
    url = "https://broker.example:8443"
    token_file = "prod.token"
    ca_file = "prod-ca.crt"
""",
    "output": """\
Data goes to standard output, everything else to standard error.

--output table    aligned text for people; control characters are escaped
--output json     one JSON document
--output ndjson   a JSON object in each line

Bytes that are not UTF-8 are base64, with "encoding": "base64" beside a value and
"key_encoding": "base64" beside a key. Only progress on a terminal uses escape codes.
""",
    "exit-codes": """\
0    done
1    failed
2    a wrong option, name or setting
3    the broker or the data cannot be reached
4    not found
130  interrupted
""",
    "places": """\
consume --from and --until, and groups reset --to, take a place in each partition:

earliest, latest        the first kept record; the end
1000                    an offset
-10                     so many records before the end
2026-01-31T12:00:00Z    the first record of that time or later; without a zone: UTC
2h, 10m, 7d             so long ago
""",
    "format": """\
consume --format and tail --format take a template:

%t topic  %p partition  %o offset  %k key  %v value  %h headers
%T publish time  %E event time, both in microseconds since 1970  %% a percent sign
\\n line end  \\t tab  \\r  \\0  \\\\  \\xHH a byte

Example: braidlog consume orders --format '%p:%o %k=%v\\n'
""",
}
