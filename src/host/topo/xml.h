/* SPDX-License-Identifier: Apache-2.0 */
/* hwloc's XML, reduced to what is needed here. hwloc stops the process on some inputs and its
 * export holds serial numbers, so a record's XML is read by this first and written anew: known
 * elements, known attributes, values in range, nothing that names a machine. */
#ifndef RY_HOST_TOPO_XML_H
#define RY_HOST_TOPO_XML_H

#include "facts_internal.h"

/* Writes the reduced form of `xml` to `out`. Errors: RY_ERR_INVALID, `why` says where. */
int ry_xml_reduce(const char *xml, struct ry_text *out, char *why, size_t why_bytes);

#endif
