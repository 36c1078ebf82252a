/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of `railyard doctor`. Each family is a file with a table; a check reads facts only,
 * so that it says the same of a machine and of its record. */
#ifndef RY_TOOL_DOCTOR_H
#define RY_TOOL_DOCTOR_H

#include <railyard/topo.h>

enum { DOCTOR_ENV = 512, DOCTOR_LIBS = 128, DOCTOR_EXTENSIONS = 16 };

enum ry_verdict { RY_VERDICT_OK, RY_VERDICT_WARN, RY_VERDICT_FAIL, RY_VERDICT_NA };

struct ry_result {
    enum ry_verdict verdict;
    char cause[320];
    char fix[512]; /* a command, empty if none is needed */
};

/* A library in sight, in the order in which the loader looks. */
struct ry_lib {
    const char *name, *path, *version, *origin;
};

/* A Python extension and what it was built for. */
struct ry_extension {
    const char *name, *path, *python, *sm, *version;
    int ibgda;
};

struct ry_doctor {
    ry_facts *facts;
    ry_topo *topo;
    char handler[24]; /* wanted: auto, gpu, cpu, cpu_host_memory */
    unsigned pes;     /* of the job */
    unsigned tokens;  /* a PE sends at once */
    unsigned gpus, ports;
    unsigned env_count, lib_count, extension_count;
    int has_modules, has_libs, has_extensions; /* whether the facts could be read at all */
    char *env_text, *lib_text, *extension_text, *modules, *packages, *limits;
    const char *env[DOCTOR_ENV];
    struct ry_lib libs[DOCTOR_LIBS];
    struct ry_extension extensions[DOCTOR_EXTENSIONS];
};

struct ry_check {
    const char *id;
    const char *reads;   /* the facts it rests on */
    const char *explain; /* what it means, what happens if it fails, what helps */
    void (*run)(struct ry_doctor *doctor, struct ry_result *result);
};

struct ry_family {
    const char *name;
    const struct ry_check *checks; /* ends with an id of NULL */
};

extern const struct ry_check ry_checks_driver[], ry_checks_port[], ry_checks_limit[],
    ry_checks_pcie[], ry_checks_library[], ry_checks_build[], ry_checks_fabric[], ry_checks_rail[],
    ry_checks_setting[], ry_checks_log[];

/* All families, ending with a name of NULL. */
const struct ry_family *ry_doctor_families(void);

/* Reads what several checks need. `doctor` is the caller's; facts and topo stay the caller's. */
int ry_doctor_open(struct ry_doctor *doctor, ry_facts *facts, ry_topo *topo);
void ry_doctor_close(struct ry_doctor *doctor);

/* Sets verdict and cause; the fix with ry_fix. */
void ry_say(struct ry_result *result, enum ry_verdict verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void ry_fix(struct ry_result *result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A setting, NULL if it is not set or empty. */
const char *ry_doctor_env(const struct ry_doctor *doctor, const char *name);

/* Whether a kernel module is loaded, a package installed (a prefix of its name). */
int ry_doctor_module(const struct ry_doctor *doctor, const char *name);
int ry_doctor_package(const struct ry_doctor *doctor, const char *prefix);

/* The library the loader takes: the first of that name (or a name that begins so). NULL if none.
 */
const struct ry_lib *ry_doctor_lib(const struct ry_doctor *doctor, const char *name);

/* A limit in bytes or files; -1 unlimited, -2 unknown. */
long long ry_doctor_limit(const struct ry_doctor *doctor, const char *name);

/* True for letters, digits and the punctuation of paths and versions. */
int ry_is_plain(const char *text);

/* "3.5.19-1" < "3.10"; a dash is older than all. */
int ry_version_compare(const char *a, const char *b);

/* Sets "n.a." and returns 1 if the machine has no GPU, no port, or either. */
int ry_needs_gpu(const struct ry_doctor *doctor, struct ry_result *result);
int ry_needs_port(const struct ry_doctor *doctor, struct ry_result *result);
int ry_needs_both(const struct ry_doctor *doctor, struct ry_result *result);

/* The first network interface of an RDMA device, "" if none. */
void ry_doctor_interface(const struct ry_doctor *doctor, const char *device, char *name,
                         size_t cap);

#endif
