"""Object stores: files and folders are read by their address, against a server of our own that speaks S3."""

from __future__ import annotations

import io
from collections.abc import Iterator

import polars as pl
import pytest

from sklar.errors import DataError
from sklar.public.schema import Schema
from sklar.rows.parts import look, open_files, read_part
from sklar.rows.read import open_source


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    server = pytest.importorskip("moto.server", reason="moto is not installed")
    boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
    with pytest.MonkeyPatch.context() as patch:
        running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        running.start()
        host, port = running.get_host_and_port()
        settings = {
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "hidden",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ALLOW_HTTP": "true",
        }
        for name, value in settings.items():
            patch.setenv(name, value)
        client = boto3.client("s3")
        client.create_bucket(Bucket="bucket")
        for key, values in (
            ("t.parquet", [1, 2, 3]),
            ("parts/year=2000/1.parquet", [4]),
            ("parts/year=2001/2.parquet", [5]),
        ):
            file = io.BytesIO()
            pl.DataFrame({"x": values}).write_parquet(file)
            client.put_object(Bucket="bucket", Key=key, Body=file.getvalue())
        file = io.BytesIO()
        pl.DataFrame({"x": [6]}).write_ipc(file)
        client.put_object(Bucket="bucket", Key="t.arrow", Body=file.getvalue())
        client.put_object(Bucket="bucket", Key="t.csv", Body=b"x\n7\n8\n")
        yield "s3://bucket"
        running.stop()


@pytest.mark.parametrize(
    ("path", "columns", "rows"),
    [
        ("t.parquet", ("x",), [(1,), (2,), (3,)]),
        ("t.arrow", ("x",), [(6,)]),
        ("parts", ("x", "year"), [(4, 2000), (5, 2001)]),
        ("parts/", ("x", "year"), [(4, 2000), (5, 2001)]),
    ],
)
def test_files_and_folders(bucket: str, path: str, columns: tuple[str, ...], rows: list[tuple[int, ...]]) -> None:
    source = open_source(f"{bucket}/{path}")
    assert source.columns == columns
    assert sorted(row for batch in source.batches(columns) for row in batch.rows()) == rows


def test_what_is_not_there(bucket: str) -> None:
    with pytest.raises(
        DataError, match=r"'s3://bucket/no\.parquet' cannot be read\. Check the address, and the"
    ) as refused:
        open_source(f"{bucket}/no.parquet")
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "wanted"), [("t.parquet", [1, 2, 3]), ("t.arrow", [6]), ("t.csv", [7, 8]), ("parts", [4, 5])]
)
def test_parts_of_a_store_are_its_rows(bucket: str, path: str, wanted: list[int]) -> None:
    """As executors of Spark read them: listed by pyarrow, read by polars."""
    pytest.importorskip("pyarrow")
    schema = Schema.from_toml('[attributes.x]\ntype = "integer"\nedges = [0, 9]\n')
    source, parts = open_files(
        f"{bucket.replace('s3:', 's3a:')}/{path}",
        schema,
        lambda addresses, root: [look(address, root, schema) for address in addresses],
    )
    rows = [value for part in parts for batch in read_part(part, schema, ("x",)) for value in batch["x"]]
    assert [int(value) for value in rows] == wanted
    assert ("year" in source.columns) == (path == "parts")
