// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `console` and `ports`: what they mean, and every mistake in them.

use super::*;

use turnstile_bundle::ServiceDevice;

#[test]
fn each_vm_with_a_virtio_console_has_a_service() {
    let serial = "console = \"serial\"";
    let text = vms(&["entropy = true\nconsole = \"virtio\"", serial, "console = \"virtio\""]);
    let config = parse_text(&text).unwrap();
    let names: Vec<&str> = config.services.iter().map(|service| service.name.value.as_str()).collect();
    assert_eq!(names, ["entropy-a", "console-a", "console-c"], "other functions keep their slots");
    for (service, vm) in config.services[1..].iter().zip([0, 2]) {
        assert_eq!((service.device, service.vm), (ServiceDevice::Console, Some(vm)));
        assert_eq!((service.memory, service.limit, service.cpu), (true, 1_000_000_000, None));
        assert_eq!(service.program.value, Program::Ours("console".into()));
    }
}

#[test]
fn mistakes_in_consoles_are_shown() {
    let with = |text: &str| format!("{MINIMAL}{text}\n");
    expect(&with("console = \"hvc\""), &[("\"hvc\"", "`console` cannot be `hvc`", "`virtio`")]);
    let text = vms(&[&format!("{SHARED}console = \"virtio\""), &format!("{SHARED}realtime = 5")]);
    let what =
        "the virtio console `console-a` may keep the real-time VM `b` waiting: `a` shares a CPU with it";
    expect(&text, &[("\"virtio\"", what, "or take `console` out")]);
}

#[test]
fn each_vm_with_ports_has_a_service_behind_its_console() {
    let text =
        vms(&["ports = [\"agent\", \"log.1_x-y\"]\nconsole = \"virtio\"", "ports = []", "ports = [\"a\"]"]);
    let config = parse_text(&text).unwrap();
    let services: Vec<_> =
        config.services.iter().map(|service| (service.name.value.as_str(), service.ports.as_str())).collect();
    assert_eq!(services, [("console-a", ""), ("ports-a", "agent log.1_x-y"), ("ports-c", "a")]);
    let service = &config.services[1];
    assert_eq!((service.device, service.vm, service.memory), (ServiceDevice::Ports, Some(0), true));
    assert_eq!((service.limit, &service.program.value), (1_000_000_000, &Program::Ours("ports".into())));
}

#[test]
fn mistakes_in_ports_are_shown() {
    let with = |text: &str| format!("{MINIMAL}{text}\n");
    expect(&with("ports = \"agent\""), &[("\"agent\"", "must be a list of names such as", "")]);
    let twice = with("ports = [\"agent\", \"Agent\", \"..\", \"agent\"]");
    let same = "there are two ports with the name `agent`";
    let wanted = [
        ("\"Agent\"", "`Agent` cannot be a port's name", "1 to 31 characters of a-z"),
        ("\"..\"", "`..` cannot be a port's name", "1 to 31 characters of a-z"),
        ("\"agent\"", same, "its own"),
    ];
    expect(&twice, &wanted);
    let many: Vec<String> = (0..14).map(|number| format!("\"p{number}\"")).collect();
    let many = with(&format!("ports = [{}]", many.join(", ")));
    expect(&many, &[("\"p13\"", "at most 13 ports", "take the others out")]);
    let text = vms(&[&format!("{SHARED}ports = [\"agent\"]"), &format!("{SHARED}realtime = 5")]);
    let what =
        "the service of ports `ports-a` may keep the real-time VM `b` waiting: `a` shares a CPU with it";
    expect(&text, &[("\"agent\"", what, "or take `ports` out")]);
}
