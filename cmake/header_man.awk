# Makes the section 3 page of one public header, so that what a function promises is written once.
# usage: awk -v name=railyard_rma -v header=rma.h -v date=... -v version=... -v folder=OUT
#            -f header_man.awk HEADER
# Writes OUT/railyard_rma.3 and, for every function, OUT/FUNCTION.3, which points to it.

# What a line says in roff: backslashes and hyphens as themselves, no line taken for a request.
function roff(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    if (text ~ /^[.']/) text = "\\&" text
    return text
}
function out(text) { print text > page }
# A comment without its marks.
function bare(line) {
    sub(/^ *\/\* ?/, "", line); sub(/^ *\* ?/, "", line); sub(/ *\*\/ *$/, "", line)
    return line
}
# Paragraphs of a comment; lines that are indented or begin a list stay lines of their own.
function prose(text,    i, n, lines) {
    n = split(text, lines, "\n")
    for (i = 1; i <= n; i++) {
        if (lines[i] ~ /^ *$/) { if (i < n && i > 1) out(".PP"); continue }
        if (i > 1 && lines[i] ~ /^(  |[a-z][a-z]: )/ && lines[i - 1] !~ /^ *$/) out(".br")
        sub(/^ +/, "", lines[i])
        out(roff(lines[i]))
    }
}
function alias(line) {
    if (line !~ /[ *]ry_[a-z0-9_]+\(/) return
    match(line, /ry_[a-z0-9_]+\(/)
    symbol = substr(line, RSTART, RLENGTH - 1)
    target = folder "/" symbol ".3"
    print ".so man3/" name ".3" > target
    close(target)
}
function begin_page(    title) {
    title = first
    if (match(first, /[.:]( |\n|$)/)) title = substr(first, 1, RSTART - 1)
    gsub(/\n/, " ", title)
    title = tolower(substr(title, 1, 1)) substr(title, 2)
    out(".TH " name " 3 \"" date "\" \"railyard " version "\" \"Library functions\"")
    out(".SH NAME")
    out(name " \\- " roff(title))
    out(".SH SYNOPSIS")
    out(".B #include <railyard/" header ">")
    out(".SH DESCRIPTION")
    prose(first)
    out(".SH DECLARATIONS")
}
function end_block(    i, n, lines) {
    if (declaration != "") {
        if (blocks++) out(".PP")
        out(".nf")
        n = split(declaration, lines, "\n")
        for (i = 1; i <= n; i++) out("\\fB" roff(lines[i]) "\\fR")
        out(".fi")
        if (comment != "") {
            out(".RS 4")
            prose(comment)
            out(".RE")
        }
    }
    comment = ""
    declaration = ""
}

BEGIN { page = folder "/" name ".3" }
NR == 1 { next }                                  # the licence
/^#(if|ifndef|ifdef) / && /__cplusplus/ { foreign = 1; next }
foreign { if (/^#endif/) foreign = 0; next }
/^#/ { end_block(); if (/\\$/) macro = 1; next }
macro { if (!/\\$/) macro = 0; next }
inside_comment {
    text = text "\n" bare($0)
    if (/\*\//) { inside_comment = 0; got_comment() }
    next
}
depth == 0 && !open_declaration && /^\/\*/ {
    end_block()
    text = bare($0)
    if (/\*\//) got_comment()
    else inside_comment = 1
    next
}
/^ *$/ && depth == 0 { end_block(); next }
{
    line = $0
    sub(/^RY_API /, "", line)
    declaration = declaration == "" ? line : declaration "\n" line
    alias(line)
    depth += gsub(/\{/, "{") - gsub(/\}/, "}")
    open_declaration = depth > 0 || line !~ /;( *\/\*.*\*\/)? *$/
    if (depth == 0 && line ~ /;/) open_declaration = 0
}
END {
    end_block()
    out(".SH SEE ALSO")
    out(".BR railyard (1)")
}
function got_comment() {
    if (!started) { started = 1; first = text; begin_page() }
    else comment = text
}
