"""Java's clients and curl at a broker with authentication; skipped if their libraries are not
built.
"""

import shutil
import subprocess

import jwt
import pytest

from conformance.programs import pulsar_java_program
from conformance.programs.running import program_folder
from conformance.today.programs import SOURCES, cache
from tests.clients.secured import HANG_S, TOKEN_SECRET

pytestmark = [pytest.mark.slow, pytest.mark.clients]
PULSAR = pulsar_java_program.SOURCES / "src" / "main" / "java" / "Secured.java"
KAFKA = SOURCES / "java" / "SecuredKafka.java"
RUN_S = 300
NEVER_S = 2**33


def signed(**claims):
    return jwt.encode(claims, TOKEN_SECRET, "HS256")


def came_of(source, libraries, folder, listener, secured, logins):
    """Return the program's result of each login."""
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool} here")
    subprocess.run(["javac", "-cp", libraries, "-d", folder, source], check=True, timeout=RUN_S)
    host, port = secured.running.address(listener)
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    done = subprocess.run(
        [
            *("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", quiet),
            *("-cp", f"{folder}:{libraries}", source.stem, f"{host}:{port}", secured.ca),
        ],
        input="\n".join("\t".join(login) for login in logins),
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def with_password(secured, name, topic):
    file = secured.folder / name
    file.write_text("right one\n")
    secured.braidlog("users", "create", name, "--password-file", str(file))
    secured.braidlog("permissions", "grant", name, "admin", f"public/default/{topic}")


def test_java_logs_in_to_pulsar_each_way_and_refreshes_its_token(secured, tmp_path):
    libraries = program_folder(pulsar_java_program.NAME) / "libraries"
    if not libraries.exists():
        pytest.skip("not built: python -m conformance.programs")
    with_password(secured, "jana", "java")
    access_token = secured.braidlog("tokens", "create", "jana", "t")
    right, other = secured.certificate("jana"), secured.certificate("nobody-of-us")
    topic, secret = "persistent://public/default/java", str(secured.folder / "secret")
    outcomes = came_of(
        PULSAR,
        libraries.read_text().strip(),
        tmp_path,
        "pulsar",
        secured,
        [
            (topic, "token", access_token),
            (topic, "token", signed(sub="jana", exp=NEVER_S)),
            (topic, "supplier", secret, "jana"),
            (topic, "basic", "jana", "right one"),
            (topic, "tls", *right),
            (topic, "token", signed(sub="jana", exp=1)),
            (topic, "basic", "jana", "wrong"),
            (topic, "tls", *other),
            ("persistent://public/default/others", "token", access_token),
        ],
    )
    assert outcomes[:5] == ["came in"] * 5, outcomes
    assert outcomes[5:7] == ["refused AuthenticationException"] * 2
    assert outcomes[7:] == ["refused AuthorizationException"] * 2


def test_java_logs_in_to_kafka_by_sasl(secured, tmp_path):
    folder = cache() / "java-4.3.1"
    if not any(folder.glob("kafka-clients-*.jar")):
        pytest.skip("not built: python -m conformance.today --only java")
    with_password(secured, "kaspar", "sasl-java")
    secured.braidlog("topics", "create", "sasl-java")
    token = signed(sub="kaspar", exp=NEVER_S)
    outcomes = came_of(
        KAFKA,
        f"{folder}/*",
        tmp_path,
        "kafka",
        secured,
        [
            ("sasl-java", "OAUTHBEARER", "kaspar", token),
            ("sasl-java", "SCRAM-SHA-512", "kaspar", "right one"),
            ("sasl-java", "PLAIN", "kaspar", "right one"),
            ("sasl-java", "OAUTHBEARER", "kaspar", signed(sub="kaspar", exp=1)),
            ("sasl-java", "SCRAM-SHA-256", "kaspar", "wrong"),
            ("others", "OAUTHBEARER", "kaspar", token),
        ],
    )
    assert outcomes[:3] == ["came in"] * 3, outcomes
    assert outcomes[3:5] == ["refused SaslAuthenticationException"] * 2
    assert outcomes[5] == "refused TopicAuthorizationException"


def test_curl_logs_in_by_certificate(secured):
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    secured.user("ludo", ("describe", "cluster"))
    url = secured.environment["BRAIDLOG_URL"] + "/metrics"

    def status(*more):
        command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code} %{http_version}"]
        done = subprocess.run(
            [*command, "--cacert", secured.ca, *more, url],
            capture_output=True,
            text=True,
            timeout=HANG_S,
        )
        return done.stdout

    certificate, key = secured.certificate("ludo")
    assert status("--cert", certificate, "--key", key).startswith("200")
    certificate, key = secured.certificate("stranger")
    assert status("--cert", certificate, "--key", key).startswith("403")
    assert status().startswith("401")
