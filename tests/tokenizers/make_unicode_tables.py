"""Writes src/trireme/data/tokenizer/unicode_tables.h: where Hugging Face's `tokenizers` library, whose tables are those of
Unicode 9 and older, knows less of Unicode than utf8proc does.

    python3 tests/tokenizers/make_unicode_tables.py      # needs `pip install tokenizers` and libutf8proc

Both are asked about every code point; nothing is copied from either.
"""
import ctypes
import ctypes.util
import os

from tokenizers import normalizers, pre_tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
OUTPUT = os.path.join(HERE, "../../src/trireme/data/tokenizer/unicode_tables.h")

utf8proc = ctypes.CDLL(ctypes.util.find_library("utf8proc"))
utf8proc.utf8proc_category_string.restype = ctypes.c_char_p
utf8proc.utf8proc_unicode_version.restype = ctypes.c_char_p
for form in ("NFC", "NFD", "NFKC", "NFKD"):
    getattr(utf8proc, "utf8proc_" + form).restype = ctypes.c_void_p
libc = ctypes.CDLL(None)
libc.free.argtypes = [ctypes.c_void_p]
FORMS = {"NFC": normalizers.NFC(), "NFD": normalizers.NFD(), "NFKC": normalizers.NFKC(), "NFKD": normalizers.NFKD()}


def category(c):
    return utf8proc.utf8proc_category_string(ord(c)).decode()


def normal(form, text):
    made = getattr(utf8proc, "utf8proc_" + form)(text.encode())
    result = ctypes.string_at(made).decode()
    libc.free(made)
    return result


def forms_differ(c):
    # Alone; where its class decides on which side of another mark it comes; where it might take a mark up.
    for form, theirs in FORMS.items():
        for text in (c, "a\u0345" + c, "a" + c + "\u0334", c + "\u0301"):
            if theirs.normalize_str(text) != normal(form, text):
                return True
    return False


def ranges(name, comment, points):
    runs = []
    for point in sorted(points):
        if runs and runs[-1][1] == point - 1:
            runs[-1][1] = point
        else:
            runs.append([point, point])
    body = ", ".join(f"{{0x{a:X}, 0x{b:X}}}" for a, b in runs)
    return f"// {comment}\ninline constexpr CodePointRange {name}[] = {{{body}}};\n\n"


def main():
    every = [chr(c) for c in range(1, 0x110000) if utf8proc.utf8proc_category(c) not in (0, 28, 29)]
    new = {c for c in every if forms_differ(c)}
    # What two characters compose to must not come out of them either.
    for c in sorted(new):
        parts = normal("NFD", c)
        if len(parts) > 1:
            new.add(parts[1])
    accents, punctuation = normalizers.StripAccents(), pre_tokenizers.Punctuation()
    marks = [c for c in every if (accents.normalize_str(c) == "") != category(c).startswith("M")]
    cut = [c for c in every if ord(c) > 0x7F and
           (len(punctuation.pre_tokenize_str("a" + c + "a")) == 3) != category(c).startswith("P")]
    with open(OUTPUT, "w") as file:
        file.write("#pragma once\n\nnamespace trireme::data {\n\n")
        file.write("// Where Hugging Face's library differs from utf8proc (Unicode "
                   f"{utf8proc.utf8proc_unicode_version().decode()}), whose tables are older.\n"
                   "// Written by tests/tokenizers/make_unicode_tables.py.\n"
                   "struct CodePointRange {\n  char32_t first;\n  char32_t last;\n};\n\n")
        file.write(ranges("kNoNormalForm", "Have no decomposition and no combining class there, and compose with nothing.",
                          map(ord, new)))
        file.write(ranges("kOtherMark", "Are marks here and not there, or the other way round.", map(ord, marks)))
        file.write(ranges("kOtherPunctuation", "The same for punctuation.", map(ord, cut)))
        file.write("}  // namespace trireme::data\n")
    print(f"{len(new)} without normal form, {len(marks)} other marks, {len(cut)} other punctuation")


if __name__ == "__main__":
    main()
