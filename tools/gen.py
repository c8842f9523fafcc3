"""Generate the protobuf stubs: proto/smq/v1/*.proto -> proto/smq_proto/v1/.

    python tools/gen.py            write them
    python tools/gen.py --check    fail, and say where, if what is written differs

The generated code lives in the package `smq_proto`, because `smq` is the client's name.
The protobuf package stays `smq.v1`: that is what travels on the wire.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path("smq/v1")
TARGET = Path("smq_proto/v1")
GENERATED = re.compile(r".*_pb2(_grpc)?\.pyi?")


def generate(proto: Path) -> dict[str, str]:
    """The generated files of the definitions below `proto`, by name."""
    sources = sorted(path.relative_to(proto).as_posix() for path in (proto / SOURCE).glob("*.proto"))
    if not sources:
        raise SystemExit(f"no .proto files in {proto / SOURCE}")
    with tempfile.TemporaryDirectory() as out:
        code = protoc.main(
            [
                "protoc",
                f"--proto_path={proto}",
                f"--proto_path={files('grpc_tools') / '_proto'}",
                f"--python_out={out}",
                f"--pyi_out={out}",
                f"--grpc_python_out={out}",
                *sources,
            ]
        )
        if code:
            raise SystemExit(code)
        services = {
            f"{Path(name).stem}_pb2_grpc.py"
            for name in sources
            if re.search(r"^\s*service\s+\w+", (proto / name).read_text(), re.MULTILINE)
        }
        return {
            path.name: rewrite(path.read_text())
            for path in sorted((Path(out) / SOURCE).iterdir())
            if not path.name.endswith("_pb2_grpc.py") or path.name in services
        }


def rewrite(code: str) -> str:
    """Let the generated code import itself from `smq_proto`; names on the wire stay."""
    code = re.sub(r"^from smq\.v1 import ", "from smq_proto.v1 import ", code, flags=re.MULTILINE)
    code = re.sub(r"^import smq\.v1\.", "import smq_proto.v1.", code, flags=re.MULTILINE)
    # the module that messages say they come from (repr, pickle)
    return re.sub(r"(BuildTopDescriptorsAndMessages\(DESCRIPTOR, ')smq\.v1\.", r"\1smq_proto.v1.", code)


def present(target: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(target.iterdir()) if GENERATED.fullmatch(path.name)}


def check(wanted: dict[str, str], target: Path) -> int:
    found = present(target)
    for name in sorted(wanted.keys() | found.keys()):
        if name not in wanted:
            print(f"{target / name}: no definition generates this file")
        elif name not in found:
            print(f"{target / name}: is missing")
        elif wanted[name] != found[name]:
            print(f"{target / name}: differs")
            diff = difflib.unified_diff(
                found[name].splitlines(), wanted[name].splitlines(), "present", "generated", lineterm="", n=1
            )
            print("\n".join(line[:200] for line in diff))
    if wanted == found:
        return 0
    print("generated stubs have drifted from proto/smq/v1: run `make gen` and commit the result")
    return 1


def write(wanted: dict[str, str], target: Path) -> None:
    for name in present(target).keys() - wanted.keys():
        (target / name).unlink()
    for name, code in wanted.items():
        (target / name).write_text(code)


def main() -> int:
    parser = argparse.ArgumentParser(description="Generate the protobuf stubs.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the stubs have drifted")
    parser.add_argument("--proto", type=Path, default=ROOT / "proto", help="the folder with smq/v1 (default: proto)")
    args = parser.parse_args()
    wanted = generate(args.proto)
    if args.check:
        return check(wanted, args.proto / TARGET)
    write(wanted, args.proto / TARGET)
    return 0


if __name__ == "__main__":
    sys.exit(main())
