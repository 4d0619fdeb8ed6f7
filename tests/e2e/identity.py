"""Services that give keys for a while, as those of a cloud do: a token service (STS) and a machine's metadata (IMDSv2).

Each key pair is made known to an s3d, and taken from it the moment it expires: who still uses it is refused.
"""

import http.server
import json
import secrets
import threading
import time

STS = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey>
<SessionToken>%s</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""

ROLES = "/latest/meta-data/iam/security-credentials/"


class Services:
    """Both behind one port of this machine, until the block ends."""

    def __init__(self, origin, lifetime):
        self.origin = origin
        self.lifetime = lifetime
        self.granted = 0
        self.ended = 0
        self.tokens = []  # that web identities were shown
        self.skew = 0  # seconds that the services' clock is ahead
        self.troubles = []  # what the next requests meet, in order: see trouble()
        self.lock = threading.Lock()
        self.timers = []
        services = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def handle(self):
                try:
                    super().handle()
                except (BrokenPipeError, ConnectionResetError):
                    pass  # who asked has given up

            def answer(self, status, text):
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def trouble(self):
                """Whether this request meets one: an error, an answer that is none, or half of one, silence, no answer."""
                with services.lock:
                    kind = services.troubles.pop(0) if services.troubles else None
                if kind == "slow":
                    time.sleep(3.5)  # longer than somebody next door is waited for; then as ever
                elif kind == "garbage":
                    self.answer(200, "<html>Sorry</html>\n{]")
                elif kind == "half":
                    self.send_response(200)
                    self.send_header("Content-Length", "1000")
                    self.end_headers()
                    self.wfile.write(b'{"AccessKeyId": "K')
                    self.close_connection = True
                elif kind == "reset":
                    self.close_connection = True
                elif kind:
                    self.answer(int(kind), "")
                return kind and kind != "slow"

            def do_POST(self):
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                fields = dict(part.partition("=")[::2] for part in form.split("&"))
                if fields.get("Action") != "AssumeRoleWithWebIdentity" or fields.get("Version") != "2011-06-15":
                    self.answer(400, "<ErrorResponse><Error><Code>InvalidAction</Code></Error></ErrorResponse>")
                    return
                services.tokens.append(fields["WebIdentityToken"])
                if not self.trouble():
                    self.answer(200, STS % services.grant())

            def do_PUT(self):
                if self.trouble():
                    return
                good = self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
                self.answer(200 if good else 400, "the-token" if good else "")

            def do_GET(self):
                if self.trouble():
                    return
                if self.headers["X-aws-ec2-metadata-token"] != "the-token":
                    self.answer(401, "")
                elif self.path == ROLES:
                    self.answer(200, "reader")
                elif self.path == ROLES + "reader":
                    names = ("AccessKeyId", "SecretAccessKey", "Token", "Expiration")
                    self.answer(200, json.dumps(dict(zip(names, services.grant()), Code="Success", Type="AWS-HMAC")))
                else:
                    self.answer(404, "")

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def grant(self):
        key, secret, token = ("K" + secrets.token_hex(8), secrets.token_hex(16), secrets.token_hex(32))
        self.origin.ask("POST", "/keys", key="%s:%s:%s" % (key, secret, token))
        timer = threading.Timer(self.lifetime, self.end, (key,))
        timer.start()
        with self.lock:
            self.timers.append(timer)
            self.granted += 1
        # Whole seconds, never later than the key's end.
        ends = time.gmtime(int(time.time() + self.lifetime + self.skew))
        return key, secret, token, time.strftime("%Y-%m-%dT%H:%M:%SZ", ends)

    def end(self, key):
        self.origin.ask("DELETE", "/keys", id=key)
        with self.lock:
            self.ended += 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        for timer in self.timers:
            timer.cancel()
            timer.join()
