"""Texts that the machine in C makes: of numbers, whatever the process's locale, and of many pieces."""

from __future__ import annotations

import contextlib
import locale
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest
from needs import of_extra
from program_runs import compiled, native_program

import dietcode
from dietcode.errors import ModelError, ProgramError
from dietcode.programs.letters import small_at
from dietcode.programs.modeling import model_of
from dietcode.programs.planning import plan_program
from dietcode.runtime.programs.loaded import LoadedProgram

torch: Any = pytest.importorskip("torch", reason=of_extra("bench"))

_COMMA = "xx_XX.UTF-8"


def written(x: float) -> str:
    return f"{x} {x:08.2f} {x:8.1f} {x:e} {x:012.3e} {x:.0f} {str(x)}"  # noqa: RUF010


def grown(given: tuple[int, list[str]]) -> Any:
    count, words = given
    text, other = "", "é"
    for at in range(count):
        text += f"{at},"
        other = other + words[at % len(words)]
    whole = words[0] + ", ".join(words * 2)
    return text, other, ", ".join(words), "".join(words), whole, text + other == other


def branched(words: list[str]) -> list[str]:
    """Several that begin alike: each keeps its own."""
    base = words[0] + words[-1]
    found = [base + one for one in words]
    found += [one + base for one in found]
    return [*found, base + base, base]


def _native(function: Any, samples: list[Any]) -> LoadedProgram:
    """A program of a function, which has tensor code besides, as each has some."""

    def program(given: Any, row: Any) -> Any:
        return function(given), torch.tanh(row)

    given = [(one, torch.ones(2)) for one in samples]
    model, weights = model_of(dietcode.program(program), given, function.__name__)
    return native_program(plan_program(model, {}), weights)


def _called(program: LoadedProgram, given: list[Any]) -> list[Any]:
    found = program([(one, torch.ones(2)) for one in given], errors="return")
    return [one if isinstance(one, Exception) else one[0] for one in found]


NUMBERS = [0.1, -0.0, 1.5, 1e16, 1e-5, -123456.789, 1e300, 5e-324, 2 / 3, math.inf, -math.inf, math.nan, 1.0]


def test_numbers_are_written_as_python_writes_them() -> None:
    given = [*NUMBERS, -math.nan]
    assert _called(_native(written, [0.5, 1.0]), given) == [written(one) for one in given]


def test_numbers_have_a_point_where_the_locale_has_a_comma(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled here, for machines have few; of glibc, as LOCPATH is."""
    source = tmp_path / "comma"
    source.write_text('LC_NUMERIC\ndecimal_point ","\nthousands_sep "."\ngrouping 3;3\nEND LC_NUMERIC\n')
    command = ["localedef", "-c", "-i", str(source), "-f", "UTF-8", str(tmp_path / _COMMA)]
    with contextlib.suppress(OSError):
        subprocess.run(command, check=False, capture_output=True)  # 1 for what a locale has besides
    program = _native(written, [0.5, 1.0])
    monkeypatch.setenv("LOCPATH", str(tmp_path))
    before = locale.setlocale(locale.LC_NUMERIC)
    try:
        locale.setlocale(locale.LC_NUMERIC, _COMMA)
    except locale.Error:
        pytest.skip("no locale with a comma can be made on this machine")
    try:
        assert locale.format_string("%.1f", 0.5) == "0,5"
        assert _called(program, NUMBERS) == [written(one) for one in NUMBERS]
        assert locale.format_string("%.1f", 0.5) == "0,5"  # it is as it was
    finally:
        locale.setlocale(locale.LC_NUMERIC, before)


@pytest.mark.thorough
def test_texts_of_many_pieces_take_no_more_than_they_have() -> None:
    program = _native(grown, [(3, ["a", "bc"]), (0, ["d"])])
    given: list[Any] = [(0, ["x"]), (40, ["a", "é", ""]), (20_000, ["abcdefgh", "ij"] * 200), (7, ["w"] * 3)]
    program.max_bytes = 30_000_000  # all that 20000 pieces were, one behind the other: 1 GB and 1 GB
    assert _called(program, [*given, *given]) == [grown(one) for one in [*given, *given]]
    words = [["x", "y"], ["é" * 300, "z" * 500, ""]]
    assert _called(_native(branched, [["a", "b"]]), words) == [branched(one) for one in words]


def popped(items: list[int]) -> Any:
    texts = str(items.pop()), repr(items.pop()), f"{items.pop():>4}", hex(items.pop()), "%d" % items.pop()  # noqa: UP031
    return texts, format(items.pop(), "+d"), items


def test_what_becomes_a_text_is_computed_once() -> None:
    given = [list(range(8)), [5, -4, 300, 2, 1, 0]]
    wanted = [popped(list(one)) for one in given]
    assert compiled(popped, [list(one) for one in given], [list(one) for one in given]) == wanted


ALPHABET = "abcdefghijkl"


def taken_apart(text: str) -> Any:
    found: list[Any] = []
    for at, one in enumerate(text):
        if one in ALPHABET:
            found.append(ALPHABET.index(one))
        elif one.isdigit() or one.isspace():
            found.append(ord(one) - ord("0"))
        if at and text[at - 1] == one:
            found.append((one, at))
    try:
        number = int(text)
    except ValueError:
        number = -1
    try:
        real = float(text)
    except ValueError:
        real = -1.0
    first = text[0] if text else "?"
    parts = (
        text[::-1],
        text[1:3],
        text[-2:],
        text[:-1:2],
        len(text),
        text.split(),
        text.split("-"),
        list(text),
    )
    tests = (
        text.startswith("a"),
        text.endswith("é"),
        "b" in text,
        text.find("b"),
        text.count("a-"),
        text == "l",
    )
    order = sorted(text), max([text, "k"]), sorted([(text, 1), ("b", 2), ("b", 0)]), (1, text) < (1, "b")
    made = text.replace("a", "bb"), text.strip(), text * 2, {one: text.count(one) for one in text}
    return found, number, real, first, parts, tests, order, made


TEXTS = [
    "abba",
    "l 12",
    " 2.5x",
    "a-b-",
    "",
    "12",
    "-7 ",
    "+3.5e2",
    "nope é",
    "  a-a- kühl ",
    "1e",
    ".",
    "-inf",
    "x" * 40,
]


def test_texts_are_taken_apart_as_python_does() -> None:
    wanted = [taken_apart(one) for one in TEXTS]
    assert _called(_native(taken_apart, TEXTS[:8]), TEXTS) == wanted
    assert compiled(taken_apart, TEXTS[:8], TEXTS) == wanted


def joined(items: list[Any]) -> str:
    return "-".join(items)


def summed(pair: tuple[Any, Any]) -> Any:
    return pair[0] + pair[1]


def by_digits(x: Any) -> str:
    return f"{x:d}"


def as_text(x: Any) -> str:
    return f"<{x}>"


def rounded(given: tuple[float, Any]) -> float:
    return round(given[0], given[1])


def ordered(given: tuple[str, Any]) -> bool:
    return given[0] < given[1]


@pytest.mark.parametrize(
    ("function", "sample", "given", "words"),
    [
        (joined, ["a", "b"], ["a", 1], "int in a list or a sum that becomes a text; allowed: texts"),
        (summed, ("a", "b"), ("a", 1), "int in a list or a sum that becomes a text; allowed: texts"),
        (
            by_digits,
            1,
            1.5,
            "float by a specification; allowed: int, bool by d, f, e or g, float by f, e or g",
        ),
        (as_text, 1, [1], "list as a text; allowed: numbers, bools, texts and None"),
        (rounded, (1.5, 1), (1.5, "1"), "round of float to str digits; allowed: a number, to int"),
        (ordered, ("a", "b"), ("a", 1), "str before or behind int; allowed: two texts"),
    ],
)
def test_what_is_no_text_is_named(function: Any, sample: Any, given: Any, words: str) -> None:
    (found,) = _called(_native(function, [sample]), [given])
    assert isinstance(found, ProgramError) and words in str(found)


def test_join_of_numbers_is_refused() -> None:
    with pytest.raises(ModelError, match=r"test_texts\.py:\d+: .*expected str instance, int found"):
        _native(joined, [[1, 2]])


def letters_of(text: str) -> Any:
    cases = text.upper(), text.lower(), text.capitalize(), text.title(), text.casefold()
    are = text.isalpha(), text.isalnum(), text.isupper(), text.islower()
    return cases, are, f"{text!r}", repr(text), f"{len(text)!r} {1.5!r} {text!s}"


def trimmed(text: str) -> Any:
    ends = text.lstrip(), text.rstrip(), text.strip("a -"), text.lstrip("a -"), text.rstrip("a -")
    pieces = text.removeprefix("a"), text.removesuffix("-"), text.partition("-"), text.rpartition("-")
    return ends, pieces, text.zfill(6), text.ljust(7), text.rjust(7), text.rfind("a"), text.rfind("")


def spelled(text: str) -> Any:
    found = "".join(chr(ord(one) + 1) for one in text)
    try:
        last = chr(len(text) - 1)
    except ValueError:
        last = "none"
    try:
        left, right = text
    except ValueError:
        left, right = "no", "pair"
    (c, d), *rest = [text[:2] if len(text) > 1 else "xy", *text]
    return found, last, left, right, c, d, rest, [a + b for a, b in ("xy", (text or "w")[-1:] + "z")]


def in_widths(given: tuple[int, int]) -> Any:
    n, width = given
    plain = f"{n:>5}|{n:<5}|{n:^6}|{n:=+7}|{n:*>8}|{n:é^9d}|{n:5}|{n: }|{n:-}|{n:{width}d}|{n:<{width}}|"
    groups = (
        f"{n:,}|{n:_d}|{n:+,.2f}|{n:>12,}|{n:,.0f}|{n:012d}|{n:<05d}|{n:x}|{n:#X}|{n:08b}|{n:#o}|{n:#010x}|"
    )
    floats = f"{n:.2f}|{n:8.3f}|{n:.1%}|{n:>9.1%}|{n:g}|{n:.3G}|{n:.2E}|{n > 2:>3}|{n > 2}"
    return plain, groups, floats, bin(n), hex(n), oct(n), format(n, "^7"), format(n)


def in_digits(x: float) -> Any:
    found = f"{x:.3}|{x:.1}|{x:.17}|{x:12.4}|{x:g}|{x:.3g}|{x:+.2g}|{x:,}|{x:,.1f}|{x:.1%}|{x:>10}|{x:012.4G}"
    percent = "%5.1f|%-8.2e|%g|%+.1f|%d|%s|%r|%5s" % (x, x, x, x, 7.9, x, x, x)  # noqa: UP031
    return found, percent, f"{x:=+11.2f}|{x:*^12}|{x:F}"


def cut_and_aligned(text: str) -> Any:
    n = len(text)
    others = "{:>6}|{:.2}|{!r:<9}".format(text, text, text), "{1}-{0}-{1:^7}-{{}}".format(n, text)  # noqa: UP032
    percent = "%s|%5s|%-5s|%.1s|%r|100%%|%03d|%x" % (text, text, text, text, text, n, n)  # noqa: UP031
    named = "{a:03d} {b}".format(b=text, a=n), "n=%d" % n, format(text, "^9.3s")  # noqa: UP031, UP032
    return (
        f"{text:>6}|{text:<6}|{text:^7}|{text:6}|{text:.2}|{text:é>4}|{text!r:>8}|{n!s:>3}",
        others,
        percent,
        named,
    )


FORMATTED: dict[Any, tuple[list[Any], list[Any]]] = {
    in_widths: (
        [(3, 4), (-12, 1)],
        [(0, 0), (1234567, 9), (-98765, 3), (255, 12), (2, 5), (-1, 2), (1000, 1)],
    ),
    in_digits: ([1.5, -0.25], [*NUMBERS, 1e22, 123456.0, 99999.5, -1e-7, 100.0, 0.0001, 9.995]),
    cut_and_aligned: (["ab", "abcdefgh"], ["", "é😀", "it's", "abc", "x" * 30]),
}


@pytest.mark.parametrize("function", FORMATTED, ids=lambda one: one.__name__)
def test_what_is_formatted_is_as_python_has_it(function: Any) -> None:
    samples, given = FORMATTED[function]
    given = [*samples, *given]
    wanted = [function(one) for one in given]
    assert _called(_native(function, samples), given) == wanted
    assert compiled(function, samples, given) == wanted


def in_a_width(x: Any) -> str:
    return f"{x:>4}|{x:,}"


def to_digits(x: Any) -> str:
    return f"{x:.3}"


def aligned(x: Any) -> str:
    return f"{x:>4}"


@pytest.mark.parametrize(
    ("function", "sample", "given"),
    [(in_a_width, 1, [True, 2.5, "a", None]), (to_digits, 1.5, [3, "abcd"]), (aligned, "ab", [3, None, [1]])],
)
def test_what_is_formatted_is_of_a_kind_or_an_error(function: Any, sample: Any, given: list[Any]) -> None:
    for found, one in zip(_called(_native(function, [sample]), given), given, strict=True):
        if isinstance(one, int | float) and function is in_a_width:
            assert found == function(one)
        else:
            assert isinstance(found, ProgramError)


def numbers_of(text: str) -> Any:
    found: list[Any] = []
    try:
        found.append(int(text))
    except ValueError as error:
        found.append(str(error))
    try:
        found.append(f"{float(text)}")
    except ValueError as error:
        found.append(str(error))
    return found


WRITTEN = ["1_000", "١٢", " +5\n", "1__0", "_1", "1_", "", "-", "1_0.5", "1e5"]
WRITTEN += ["+nan", "-Infinity", "٣.٥", "1_e5", "it's"]


@pytest.mark.thorough
def test_numbers_are_read_as_python_reads_them() -> None:
    given = [*TEXTS, *WRITTEN]
    wanted = [numbers_of(one) for one in given]
    assert _called(_native(numbers_of, TEXTS), given) == wanted
    assert compiled(numbers_of, TEXTS, given) == wanted


LETTERS = [*TEXTS, "ΑΣ ος'Σ", "straße ǅ", "x'y\"z\\\n\t\x00é\u200b😀", "it's", "İi\u0345 ﬁ", "Α.Σ·Α ΣΣ"]


@pytest.mark.thorough
@pytest.mark.parametrize("function", [letters_of, trimmed, spelled])
def test_letters_are_as_python_has_them(function: Any) -> None:
    wanted = [function(one) for one in LETTERS]
    assert _called(_native(function, LETTERS[:8]), LETTERS) == wanted
    assert compiled(function, LETTERS[:8], LETTERS) == wanted


def test_the_small_letter_of_a_sigma_depends_on_its_word() -> None:
    middle = (*range(0x3100), *range(0xA000, 0xAC00), *range(0xFE00, 0x10600), *range(0xE0000, 0xE0200))
    behind = [f"A{chr(one)}Σ" for one in middle]
    assert ["".join(small_at(list(one), k) for k in range(3)) for one in behind] == [
        one.lower() for one in behind
    ]


def test_a_bool_with_a_specification_is_a_number() -> None:
    def program(n: int) -> str:
        return f"{n > 1:d} {n > 1:5d}|{n > 1:.2f} {n > 1:e} {n > 1:+} {n > 1}"

    assert _called(_native(program, [1]), [1, 2]) == list(map(program, [1, 2]))
