// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `entropy`: what it means, and every mistake in it.

use super::*;

use turnstile_bundle::ServiceDevice;

#[test]
fn each_vm_with_entropy_has_a_service() {
    let tables = "[[disk]]\nname = \"d\"\nsize = \"1MiB\"\n[[network]]\nname = \"lan\"\n";
    let text = format!(
        "{}{tables}",
        vms(&["entropy = true", "entropy = false", "entropy = true\ndisks = [\"d\"]\nnetworks = [\"lan\"]"])
    );
    let config = parse_text(&text).unwrap();
    let names: Vec<&str> = config.services.iter().map(|service| service.name.value.as_str()).collect();
    assert_eq!(names, ["d", "lan", "entropy-a", "entropy-c"], "other functions keep their slots");
    for (service, vm) in config.services[2..].iter().zip([0, 2]) {
        assert_eq!((service.device, service.vm), (ServiceDevice::Entropy, Some(vm)));
        assert_eq!((service.memory, service.limit, service.cpu), (true, 100_000_000, None));
        assert_eq!(service.program.value, Program::Ours("rng".into()));
    }
    assert!(parse_text(MINIMAL).unwrap().services.is_empty());
}

#[test]
fn mistakes_in_entropy_are_shown() {
    expect(
        &format!("{MINIMAL}entropy = 1\n"),
        &[("1", "`entropy` must be true or false, not an integer", "")],
    );
    let name = "a".repeat(24);
    let long = format!("{}entropy = true\n", MINIMAL.replace("\"a\"", &format!("\"{name}\"")));
    let what = format!("the name of its service, `entropy-{name}`, is longer than 31 characters");
    expect(&long, &[("true", &what, "a shorter name")]);
    let taken = "[[service]]\nname = \"entropy-a\"\nprogram = \"uart\"\nvm = \"a\"\n";
    let text = format!("{MINIMAL}entropy = true\n{taken}");
    expect(&text, &[("true", "two services with the name `entropy-a`", "its own")]);
    let device = taken.replace("\"uart\"", "\"entropy\"") + "device = \"entropy\"\n";
    expect(&format!("{MINIMAL}{device}"), &[("\"entropy\"", "`device` cannot be `entropy`", "`pci`")]);
}

#[test]
fn entropy_does_not_keep_realtime_vms_waiting() {
    let text = vms(&[&format!("{SHARED}entropy = true"), &format!("{SHARED}realtime = 5")]);
    let what =
        "the entropy device `entropy-a` may keep the real-time VM `b` waiting: `a` shares a CPU with it";
    expect(&text, &[("true", what, "or take `entropy` out")]);
}

#[test]
fn a_vm_has_so_many_functions() {
    let functions = |others: usize, networks: &str| {
        let other = |number| {
            format!("[[service]]\nname = \"s{number}\"\nprogram = \"uart\"\nvm = \"a\"\ndevice = \"pci\"\n")
        };
        let others: String = (0..others).map(other).collect();
        let lan = if networks.is_empty() { "" } else { "[[network]]\nname = \"lan\"\n" };
        format!("{MINIMAL}entropy = true\nnetworks = [{networks}]\n{others}{lan}")
    };
    assert!(parse_text(&functions(29, "")).is_ok() && parse_text(&functions(28, "\"lan\"")).is_ok());
    let what = "more than 30 disks, networks and other PCI functions";
    expect(&functions(30, ""), &[("true", what, "take the others out")]);
    expect(&functions(29, "\"lan\""), &[("\"lan\"", what, "take the others out")]);
}
