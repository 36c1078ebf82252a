# Turns ctest's JUnit file into lines "pass|skip|fail TAB name[: reason]".
function emit() {
    if (name == "") return
    reason = last == "" ? "" : ": " last
    print kind "\t" name (kind == "pass" ? "" : reason)
    name = ""
}
function plain(text) {
    gsub(/&lt;/, "<", text); gsub(/&gt;/, ">", text); gsub(/&quot;/, "\"", text)
    gsub(/&apos;/, "'", text); gsub(/&amp;/, "\\&", text)
    return text
}
function keep(text) {
    text = plain(text)
    gsub(/\t/, " ", text)
    if (text ~ /[^ ]/) last = text
}
/^[ \t]*<testcase / {
    emit()
    name = $0; sub(/.*<testcase name="/, "", name); sub(/".*/, "", name)
    kind = /status="run"/ ? "pass" : "fail"
    last = ""
    inside = 0
    next
}
/^[ \t]*<skipped message="SKIP_RETURN_CODE=77"/ { if (!inside) kind = "skip" }
/^[ \t]*<system-out>/ && !inside { inside = 1; sub(/^[ \t]*<system-out>/, "") }
inside {
    closing = /<\/system-out>/
    sub(/<\/system-out>.*/, "")
    keep($0)
    if (closing) inside = 0
}
END { emit() }
