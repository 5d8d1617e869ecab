"""python3 tests/lint includes|shells|guards|words|readmes|format|unity|shared|
sizes|report

`sizes` warns and never fails; `report` lists the largest of everything."""

import sys

import format_lint
import include_lint
import shared_lint
import size_lint
import text_lint
import unity_lint

SKIPPED = 77  # ctest's SKIP_RETURN_CODE

CHECKS = {
    "includes": include_lint.check,
    "shells": size_lint.shells,
    "guards": text_lint.check_guards,
    "words": text_lint.check_all_words,
    "readmes": text_lint.check_readmes,
    "format": format_lint.check,
    "unity": unity_lint.check,
    "shared": shared_lint.check,
}


def main(arguments):
    if arguments == ["report"]:
        print("\n".join(size_lint.report()))
        return 0
    if arguments == ["sizes"]:
        found = size_lint.warnings()
        print("\n".join(found + [f"{len(found)} warnings"]))
        return 0
    if len(arguments) != 1 or arguments[0] not in CHECKS:
        print(__doc__, file=sys.stderr)
        return 2
    if arguments[0] == "format" and not format_lint.available():
        print("skipped: needs clang-format-14")
        return SKIPPED
    findings = CHECKS[arguments[0]]()
    if findings is None:
        print("skipped: git has no commit before the last one")
        return SKIPPED
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
