# cmake -DOUT=FILE.c -DIN="file;file" -P RyEmbed.cmake: the files, one after another, as a C array.
set(hex "")
foreach(file IN LISTS IN)
    file(READ ${file} part HEX)
    string(APPEND hex "${part}")
endforeach()
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
file(WRITE ${OUT} "/* Made by cmake/RyEmbed.cmake. */
#include \"ep/routing.h\"

const unsigned char ry_routing_text[] = {
${hex}
};
const size_t ry_routing_text_bytes = sizeof(ry_routing_text);
")
