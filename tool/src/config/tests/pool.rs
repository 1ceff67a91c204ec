// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that VMs have in common.

use super::*;

const POOL: &str = "[pool]\nsize = \"256MiB\"\n";

/// A VM with memory from the pool, and these lines.
fn pooled(more: &str) -> String {
    format!("{MINIMAL}memory = \"128MiB\"\nmapping = \"from-pool\"\n{more}")
}

#[test]
fn vms_have_memory_from_a_pool() {
    let text = format!("{}{}{POOL}", pooled(""), pooled("").replace("\"a\"", "\"b\"").replace("128", "256"));
    let config = parse_text(&text).unwrap();
    assert_eq!((config.pool, config.vms[1].mapping), (256 << 20, Mapping::FromPool));
    assert_eq!(parse_text(MINIMAL).unwrap().pool, 0);
}

#[test]
fn pools_that_cannot_be() {
    let sized = |size: &str| format!("{}[pool]\nsize = \"{size}\"\n", pooled(""));
    expect(&sized("129MiB"), &[("\"129MiB\"", "a pool cannot have 129MiB", "a multiple of 2MiB")]);
    expect(&format!("pool = 1\n{}", pooled("")), &[("1", "`pool` is a table", "write [pool]")]);
    expect(&format!("{MINIMAL}[pool]\n"), &[("pool", "the pool has no size", "below [pool]")]);
    expect(
        &format!("{MINIMAL}{POOL}"),
        &[("\"256MiB\"", "no VM has memory from the pool", "leave [pool] out")],
    );
    let memory = "\"128MiB\"";
    expect(&pooled(""), &[(memory, "comes from a pool, and there is none", "write [pool]")]);
    expect(&sized("64MiB"), &[(memory, "`a` may have 128MiB, and the pool has 64MiB", "at most 64MiB")]);
}

#[test]
fn services_do_not_reach_memory_of_a_pool() {
    let problem = "a service reaches the memory of `a`, which comes from a pool";
    let entropy = format!("{}{POOL}", pooled("entropy = true\n"));
    expect(&entropy, &[("\"a\"", problem, "mapping = \"on-demand\"")]);
    let port = format!("{}{POOL}[[network]]\nname = \"lan\"\n", pooled("networks = [\"lan\"]\n"));
    expect(&port, &[("\"a\"", problem, "mapping = \"on-demand\"")]);
    let service = "[[service]]\nname = \"s\"\nprogram = \"uart\"\nvm = \"a\"\n";
    assert!(parse_text(&format!("{}{POOL}{service}", pooled(""))).is_ok(), "who does not reach it");
}
