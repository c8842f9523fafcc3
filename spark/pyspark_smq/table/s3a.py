"""Tells Hadoop's S3A where a topic's files are, and how to reach them.

Settings are those of the bucket, so that other buckets of the program are not touched. A program that has set one of
them itself keeps its value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyspark_smq.errors import SparkNotSupported
from smq_core.errors import InvalidRequest
from smq_storage.object_store.clients import DEFAULT_REGION
from smq_storage.object_store.credentials import has_credentials
from smq_storage.object_store.store import StoreSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_SYSTEM = "org.apache.hadoop.fs.s3a.S3AFileSystem"
ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
SIMPLE = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
TEMPORARY = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
HADOOP_AWS = "org.apache.hadoop:hadoop-aws:{version}"


def s3a_root(settings: StoreSettings) -> str:
    """The store's root as Spark names it. Raises InvalidRequest for a store that Spark cannot reach."""
    parts = urlsplit(settings.url)
    if parts.scheme != "s3":
        raise InvalidRequest(f'Spark reads files from s3://, and this store is {settings.url}: use format("smq")')
    return f"s3a://{parts.netloc}/{parts.path.strip('/')}".rstrip("/")


def bucket_settings(settings: StoreSettings) -> dict[str, str]:
    """What S3A needs for the bucket, by the names of its settings; values of credentials are secret."""
    prefix = f"fs.s3a.bucket.{urlsplit(settings.url).netloc}."
    found: dict[str, str] = {"endpoint.region": settings.region or DEFAULT_REGION}
    if settings.endpoint:
        found["endpoint"] = settings.endpoint
        found["path.style.access"] = "true"
        found["connection.ssl.enabled"] = str(settings.endpoint.startswith("https://")).lower()
    if settings.proxy:
        proxy = urlsplit(settings.proxy)
        found["proxy.host"], found["proxy.port"] = proxy.hostname or "", str(proxy.port or 80)
    if settings.access_key:
        found["access.key"], found["secret.key"] = settings.access_key, settings.secret_key or ""
        if settings.session_token:
            found["session.token"] = settings.session_token
        found["aws.credentials.provider"] = TEMPORARY if settings.session_token else SIMPLE
    elif not has_credentials(None):
        found["aws.credentials.provider"] = ANONYMOUS
    return {prefix + name: value for name, value in found.items()}


def configure(spark: SparkSession, settings: StoreSettings) -> str:
    """Sets what S3A needs in this application, and returns the root of the files.

    Raises SparkNotSupported if S3A is not there, InvalidRequest if the application reads a bucket of this name from
    another endpoint already.
    """
    root = s3a_root(settings)
    hadoop = hadoop_configuration(spark)
    if hadoop.getClassByNameOrNull(FILE_SYSTEM) is None:
        version = spark._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        package = HADOOP_AWS.format(version=version)
        raise SparkNotSupported(
            f"Spark has no S3A file system, which reads files of s3:// ({FILE_SYSTEM} is missing): start Spark with "
            f"spark.jars.packages={package}, or put hadoop-aws-{version}.jar and the AWS SDK for Java 2 on its class "
            'path (docs/spark.md has the smallest set), or read with format("smq"), which needs no jar'
        )
    for name, value in bucket_settings(settings).items():
        present = hadoop.get(name)
        if present is None:
            hadoop.set(name, value)
        elif clash := clash_of(name, present, value, is_temporary=bool(settings.session_token)):
            raise InvalidRequest(
                f'this application reads the bucket of {root} {clash}, in another application, or with format("smq")'
            )
    return root


def clash_of(name: str, present: str, value: str, *, is_temporary: bool) -> str:
    """Why the files cannot be read while this setting has the value that is there; empty if they can.

    ``is_temporary`` says whether the bucket's key is one of one topic, for a short time.
    """
    if present != value and name.endswith(".endpoint"):
        return (
            f"at {present} already, and Hadoop keeps one address for each name of a bucket: read this topic, at {value}"
        )
    if present != value and name.endswith(".access.key") and is_temporary:
        return (
            "with another key already, and Hadoop keeps the first one for each bucket, also when it has expired: read "
            "this topic, with its temporary key"
        )
    return ""


def hadoop_configuration(spark: SparkSession) -> Any:
    """The application's Hadoop configuration. Raises SparkNotSupported if the session is remote (Spark Connect)."""
    if getattr(spark, "_jsparkSession", None) is None:
        raise SparkNotSupported(
            'pyspark_smq.read needs a session in the driver\'s own process: with Spark Connect, use format("smq")'
        )
    return spark.sparkContext._jsc.hadoopConfiguration()
