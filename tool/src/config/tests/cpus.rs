// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vCPUs and the physical CPUs that they run on.

use super::*;

#[test]
fn numbers_of_vcpus() {
    expect(&format!("{MINIMAL}vcpus = 513\n"), &[("513", "cannot have 513 vCPUs", "1 to 512")]);
    expect(&format!("{MINIMAL}vcpus = 0\n"), &[("0", "cannot have 0 vCPUs", "1 to 512")]);
    expect(&format!("{MINIMAL}vcpus = -1\n"), &[("-1", "`vcpus` must not be negative", "1 or more")]);
    expect(&format!("{MINIMAL}vcpus = \"4\"\n"), &[("\"4\"", "must be a whole number, not a string", "")]);
    let huge = "9".repeat(50);
    expect(&format!("{MINIMAL}vcpus = {huge}\n"), &[(&huge, "too large", "below 2^64")]);
    expect(&format!("{MINIMAL}vcpus = -{huge}\n"), &[(&format!("-{huge}"), "must not be negative", "")]);
    assert_eq!(parse_text(&format!("{MINIMAL}vcpus = 512\n")).unwrap().machine.cpus, 512);
}

#[test]
fn physical_cpus() {
    let two = |first: &str, second: &str| {
        format!(
            "[[vm]]\nname = \"a\"\nkernel = \"k\"\n{first}\n[[vm]]\nname = \"b\"\nkernel = \"k\"\n{second}\n"
        )
    };
    expect(
        &two("cpus = [0, 1]", "cpus = [2, 1]"),
        &[("1", "CPU 1 belongs to the VM `a` already", "name another, or write schedule = \"shared\"")],
    );
    expect(&two("cpus = [3, 3]", ""), &[("3", "CPU 3 is named twice", "")]);
    expect(&two("vcpus = 2\ncpus = [3, \"a\"]", ""), &[("\"a\"", "`cpus` must be a list of whole", "")]);
    expect(&two("cpus = [-1]", ""), &[("-1", "`cpus` must not be negative", "0 or more")]);
    let last = u64::MAX.to_string();
    expect(&two(&format!("cpus = [{last}]"), ""), &[(&last, "there is no CPU", "counted from 0")]);
    expect(&two("vcpus = 2\ncpus = [3]", ""), &[("[3]", "2 vCPUs are pinned to 1 CPUs", "name 2 CPUs")]);
    let machine = |text: &str| format!("[machine]\ncpus = 2\n{text}");
    expect(&machine(&two("vcpus = 2", "")), &[("2", "need 3 CPUs, and the machine has 2", "give 3")]);
    expect(&machine(&two("cpus = [7]", "")), &[("7", "there is no CPU 7", "")]);
    expect(
        "[machine]\ncpus = 0\n[[vm]]\nname = \"a\"\nkernel = \"k\"\n",
        &[("0", "cannot have 0 CPUs", ""), ("0", "need 1 CPUs", "")],
    );
    let config = parse_text(&two("cpus = [1]", "")).unwrap();
    assert_eq!((config.vms[1].cpus.as_slice(), config.machine.cpus), ([0].as_slice(), 2));
}

#[test]
fn shared_cpus() {
    let cpus = |text: &str| {
        let config = parse_text(text).unwrap();
        (config.machine.cpus, config.vms.into_iter().map(|vm| (vm.vcpus, vm.cpus)).collect::<Vec<_>>())
    };
    let shared = |lines: &str| format!("{SHARED}{lines}");
    // Several may name the same CPUs, and have more vCPUs than these.
    let text = vms(&[&shared("cpus = [0, 1]\nvcpus = 4"), &shared("cpus = [1, 2]"), "cpus = [3]"]);
    assert_eq!(cpus(&text), (4, vec![(4, vec![0, 1]), (2, vec![1, 2]), (1, vec![3])]));
    // Without a list: all that nobody is pinned to, whether the pins are written or found.
    let text = vms(&[&shared("vcpus = 3"), "vcpus = 2", "cpus = [1]"]);
    assert_eq!(cpus(&text), (4, vec![(3, vec![3]), (2, vec![0, 2]), (1, vec![1])]));
    let text = format!("[machine]\ncpus = 6\n{text}");
    assert_eq!(cpus(&text).1[0].1, [3, 4, 5]);
    let text = vms(&[&shared("vcpus = 64"), &shared("vcpus = 64")]);
    assert_eq!(cpus(&text), (1, vec![(64, vec![0]), (64, vec![0])]));
    assert_eq!(cpus(&vms(&[&shared("cpus = [2]"), SHARED])), (3, vec![(1, vec![2]), (1, vec![0, 1, 2])]));

    let pinned_to = "the VM `a` is pinned to CPU 1 and does not share it";
    expect(
        &vms(&["cpus = [0, 1]", &shared("cpus = [1, 2]")]),
        &[("1", pinned_to, "write schedule = \"shared\" in `a` too")],
    );
    expect(
        &vms(&[&shared("cpus = [1, 2]"), "cpus = [2]"]),
        &[("2", "CPU 2 is shared by the VM `a`", "write schedule = \"shared\" in `b` too")],
    );
    expect(&vms(&[&shared("cpus = [1, 1]")]), &[("1", "CPU 1 is named twice", "name it once")]);
    expect(&vms(&[&shared("cpus = []")]), &[("[]", "a VM needs physical CPUs", "name at least one")]);
    expect(
        &format!("[machine]\ncpus = 1\n{}", vms(&["", SHARED])),
        &[("1", "the VMs need 2 CPUs, and the machine has 1", "give 2 `cpus`, leave `cpus` out")],
    );
    expect(&vms(&["cpus = [3]\nvcpus = 2"]), &[("[3]", "2 vCPUs are pinned", "schedule = \"shared\"")]);
}

#[test]
fn weights_and_priorities() {
    let schedule = |lines: &str| parse_text(&vms(&[lines])).unwrap().vms[0].schedule;
    assert_eq!(schedule(SHARED), Schedule::Shared(Class::Fair { weight: 100 }));
    let weight = format!("{SHARED}weight = 10000");
    assert_eq!(schedule(&weight), Schedule::Shared(Class::Fair { weight: 10_000 }));
    assert_eq!(schedule("schedule = \"pinned\""), Schedule::Pinned);

    let bad =
        |lines: &str, wanted: (&str, &str, &str)| expect(&vms(&[&format!("{SHARED}{lines}")]), &[wanted]);
    bad("weight = 0", ("0", "`weight` cannot be 0", "give 1 to 10000"));
    bad("weight = 10001", ("10001", "`weight` cannot be", ""));
    bad("realtime = 0", ("0", "`realtime` cannot be 0", "give 1 to 99"));
    bad("realtime = 100", ("100", "`realtime` cannot be", ""));
    bad(
        "weight = 5\nrealtime = 1",
        ("5", "a real-time VM has no weight", "leave `weight` or `realtime` out"),
    );
    for key in ["weight", "realtime"] {
        let what = format!("`{key}` is for VMs that share");
        expect(&vms(&[&format!("{key} = 7")]), &[("7", &what, "write schedule = \"shared\"")]);
    }
    expect(&vms(&["schedule = \"fair\""]), &[("\"fair\"", "`schedule` cannot be", "`pinned` and `shared`")]);
}

#[test]
fn too_many_cpus_are_told_where_they_become_too_many() {
    let text = vms(&["vcpus = 300", "vcpus = 301", "vcpus = 302"]);
    expect(&text, &[("301", "the VMs need 903 CPUs", "at most 512")]);
}
