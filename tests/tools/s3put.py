#!/usr/bin/python3
"""A small S3 client for tests and the demo: SigV4, parallel, keys exactly as given. Standard library only.

    s3put.py [--endpoint URL] mb BUCKET
    s3put.py [--endpoint URL] put BUCKET/KEY FILE
    s3put.py [--endpoint URL] put-tree BUCKET[/PREFIX] DIR
    s3put.py [--endpoint URL] get BUCKET/KEY FILE
    s3put.py [--endpoint URL] ls BUCKET[/PREFIX]
    s3put.py [--endpoint URL] rm BUCKET/KEY
    s3put.py [--endpoint URL] rm-tree BUCKET[/PREFIX]

Keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the endpoint also from RGW_ENDPOINT.
"""

import argparse
import datetime
import hashlib
import hmac
import http.client
import os
import sys
import threading
import urllib.parse
import xml.etree.ElementTree
from concurrent.futures import ThreadPoolExecutor

TIMEOUT = 120


class S3Error(Exception):
    """An answer other than 2xx."""

    def __init__(self, status, body):
        text = body.decode("utf-8", "replace")
        super().__init__("HTTP %d: %s" % (status, text[:500]))
        self.status = status
        self.code = text.partition("<Code>")[2].partition("</Code>")[0]


def quote(text):
    return urllib.parse.quote(text, safe="-_.~")


class S3:
    """One endpoint and one key pair; threads share it, each with a connection of its own."""

    def __init__(self, endpoint, access_key, secret_key, region="us-east-1"):
        url = urllib.parse.urlsplit(endpoint)
        self.host = url.netloc
        self.tls = url.scheme == "https"
        self.access_key = access_key
        self.secret_key = secret_key
        self.region = region
        self.local = threading.local()
        self.day = None
        self.day_key = None

    @classmethod
    def from_environment(cls, endpoint=None):
        return cls(
            endpoint or os.environ["RGW_ENDPOINT"],
            os.environ["AWS_ACCESS_KEY_ID"],
            os.environ["AWS_SECRET_ACCESS_KEY"],
            os.environ.get("AWS_REGION", "us-east-1"),
        )

    def _signing_key(self, day):
        if self.day != day:
            key = ("AWS4" + self.secret_key).encode()
            for part in (day, self.region, "s3", "aws4_request"):
                key = hmac.new(key, part.encode(), hashlib.sha256).digest()
            self.day_key = key
            self.day = day
        return self.day_key

    def _headers(self, method, path, query, extra):
        now = datetime.datetime.utcnow().strftime("%Y%m%dT%H%M%SZ")
        day = now[:8]
        headers = {"host": self.host, "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": now}
        headers.update({name.lower(): value for name, value in extra.items()})
        names = sorted(headers)
        signed = ";".join(names)
        canonical = "\n".join(
            [method, path, query]
            + ["%s:%s" % (name, headers[name].strip()) for name in names]
            + ["", signed, "UNSIGNED-PAYLOAD"]
        )
        scope = "%s/%s/s3/aws4_request" % (day, self.region)
        to_sign = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        signature = hmac.new(self._signing_key(day), to_sign.encode(), hashlib.sha256).hexdigest()
        headers["authorization"] = "AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s" % (
            self.access_key,
            scope,
            signed,
            signature,
        )
        return headers

    def _connection(self, fresh):
        if fresh or getattr(self.local, "connection", None) is None:
            kind = http.client.HTTPSConnection if self.tls else http.client.HTTPConnection
            self.local.connection = kind(self.host, timeout=TIMEOUT, blocksize=1 << 20)
        return self.local.connection

    def request(self, method, bucket, key="", query=None, body=None, headers=None):
        """Sends one request; returns (status, headers, body) and raises S3Error on an error answer."""
        path = "/" + bucket + "/" + "/".join(quote(part) for part in key.split("/")) if key else "/" + bucket
        query = "&".join("%s=%s" % (quote(k), quote(v)) for k, v in sorted((query or {}).items()))
        target = path + ("?" + query if query else "")
        for attempt in (1, 2):
            connection = self._connection(fresh=attempt == 2)
            signed = self._headers(method, path, query, headers or {})
            try:
                connection.request(method, target, body=body, headers=signed)
                answer = connection.getresponse()
                data = answer.read()
                break
            except (http.client.HTTPException, OSError):
                connection.close()
                self.local.connection = None
                if attempt == 2 or (body is not None and not isinstance(body, (bytes, memoryview))):
                    raise
        if answer.status >= 300:
            raise S3Error(answer.status, data)
        return answer.status, answer.headers, data

    def create_bucket(self, bucket):
        self.request("PUT", bucket)

    def delete_bucket(self, bucket):
        self.request("DELETE", bucket)

    def put(self, bucket, key, data):
        """Uploads bytes, or an open binary file; returns the ETag."""
        return self.request("PUT", bucket, key, body=data)[1]["ETag"]

    def get(self, bucket, key, first=None, last=None):
        headers = {} if first is None else {"range": "bytes=%d-%d" % (first, last)}
        return self.request("GET", bucket, key, headers=headers)[2]

    def head(self, bucket, key):
        return self.request("HEAD", bucket, key)[1]

    def delete(self, bucket, key):
        self.request("DELETE", bucket, key)

    def list(self, bucket, prefix=""):
        """Yields (key, size, etag) in the server's order."""
        query = {"list-type": "2", "prefix": prefix, "encoding-type": "url"}
        while True:
            root = xml.etree.ElementTree.fromstring(self.request("GET", bucket, query=query)[2])
            space = root.tag.partition("}")[0] + "}" if root.tag.startswith("{") else ""
            for item in root.iter(space + "Contents"):
                yield (
                    urllib.parse.unquote(item.findtext(space + "Key")),
                    int(item.findtext(space + "Size")),
                    item.findtext(space + "ETag"),
                )
            if root.findtext(space + "IsTruncated") != "true":
                return
            query["continuation-token"] = root.findtext(space + "NextContinuationToken")

    def each(self, fn, items, threads=16):
        """Calls fn(item) for every item in parallel; the first failure is raised."""
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(fn, items):
                pass

    def put_many(self, bucket, objects, threads=16):
        """objects: iterable of (key, bytes or function giving bytes)."""

        def put_one(item):
            key, data = item
            self.put(bucket, key, data() if callable(data) else data)

        self.each(put_one, objects, threads)

    def put_tree(self, bucket, prefix, directory):
        """Uploads the regular files under a directory; returns how many."""
        paths = []
        for root, _, names in os.walk(directory):
            paths += [os.path.join(root, name) for name in names]

        def put_one(path):
            with open(path, "rb") as f:
                self.put(bucket, prefix + os.path.relpath(path, directory), f.read())

        self.each(put_one, paths)
        return len(paths)

    def delete_all(self, bucket, prefix=""):
        self.each(lambda item: self.delete(bucket, item[0]), list(self.list(bucket, prefix)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoint", default=os.environ.get("RGW_ENDPOINT"))
    parser.add_argument("command", choices=["mb", "put", "put-tree", "get", "ls", "rm", "rm-tree"])
    parser.add_argument("where")
    parser.add_argument("file", nargs="?")
    args = parser.parse_args()
    if not args.endpoint:
        parser.error("--endpoint or RGW_ENDPOINT is needed")
    if args.command in ("put", "put-tree", "get") and not args.file:
        parser.error("%s needs a file" % args.command)
    s3 = S3.from_environment(args.endpoint)
    bucket, _, key = args.where.partition("/")
    if args.command == "mb":
        s3.create_bucket(bucket)
    elif args.command == "put":
        with open(args.file, "rb") as f:
            s3.put(bucket, key, f.read())
    elif args.command == "put-tree":
        s3.put_tree(bucket, key + "/" if key else "", args.file)
    elif args.command == "get":
        with open(args.file, "wb") as f:
            f.write(s3.get(bucket, key))
    elif args.command == "ls":
        for name, size, etag in s3.list(bucket, key):
            print(size, etag, name, sep="\t")
    elif args.command == "rm":
        s3.delete(bucket, key)
    else:
        s3.delete_all(bucket, key)


if __name__ == "__main__":
    try:
        main()
    except (S3Error, OSError) as error:
        sys.exit("s3put.py: %s" % error)
