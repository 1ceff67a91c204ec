// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `console`: what it means, and every mistake in it.

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
