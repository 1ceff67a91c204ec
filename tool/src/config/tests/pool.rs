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
fn a_vm_with_memory_from_a_pool_has_what_others_have() {
    let all =
        "entropy = true\nconsole = \"virtio\"\nports = [\"agent\"]\nballoon = true\nnetworks = [\"lan\"]\n";
    let text = format!("{}{POOL}[[network]]\nname = \"lan\"\n", pooled(all));
    let config = parse_text(&text).unwrap();
    let names: Vec<&str> = config.services.iter().map(|service| service.name.value.as_str()).collect();
    assert_eq!(names, ["lan", "entropy-a", "console-a", "ports-a", "balloon-a"]);
    assert!(parse_text(&format!("{}{POOL}", pooled("balloon = false\n"))).unwrap().services.is_empty());
}

#[test]
fn disks_of_the_machine_do_not_reach_memory_of_a_pool() {
    let disk = "[[disk]]\nname = \"root\"\ndevice = \"nvme0\"\ntrusted = true\n";
    expect(
        &format!("{}{POOL}{disk}", pooled("disks = [\"root\"]\n")),
        &[(
            "\"a\"",
            "a disk behind a controller of the machine, and its memory comes from a pool",
            "on-demand",
        )],
    );
}

#[test]
fn balloons_that_cannot_be() {
    let problem = "`a` has a balloon, and its memory does not come from a pool";
    for mapping in ["", "mapping = \"at-start\"\n", "mapping = \"on-demand\"\n"] {
        let text = format!("{MINIMAL}{mapping}balloon = true\n");
        expect(&text, &[("true", problem, "write mapping = \"from-pool\" in the VM, and [pool]")]);
        assert!(parse_text(&text.replace("true", "false")).is_ok());
    }
    let text = format!("{}{POOL}", pooled("balloon = \"yes\"\n"));
    expect(&text, &[("\"yes\"", "`balloon` must be true or false", "")]);
    let waits = "the balloon `balloon-a` may keep the real-time VM `b` waiting: `a` shares a CPU with it";
    let shared = pooled(&format!("{SHARED}balloon = true\n"));
    let other = format!("{}{SHARED}realtime = 5\n", MINIMAL.replace("\"a\"", "\"b\""));
    expect(&format!("{shared}{other}{POOL}"), &[("true", waits, "or take `balloon` out")]);
}
