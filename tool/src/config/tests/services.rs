// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `[[service]]`: what it says, and every mistake in it.

use super::*;

use turnstile_bundle::ServiceDevice;

const UART: &str = "[[service]]\nname = \"console\"\nprogram = \"uart\"\nvm = \"a\"\n";

/// The minimal VM, and these tables.
fn with(services: &str) -> String {
    format!("{MINIMAL}{services}")
}

#[test]
fn services_have_defaults() {
    let config = parse_text(&with(UART)).unwrap();
    let [service] = config.services.as_slice() else { panic!("{:?}", config.services) };
    assert_eq!((service.name.value.as_str(), service.vm, service.limit), ("console", Some(0), 2_000_000));
    assert_eq!(
        (service.device, &service.program.value),
        (ServiceDevice::Uart, &Program::Ours("uart".into()))
    );
    assert!(parse_text(MINIMAL).unwrap().services.is_empty());
    let kvmtool = format!("{MINIMAL}machine = \"kvmtool\"\n{UART}");
    let program = &parse_text(&kvmtool).unwrap().services[0].program.value;
    assert_eq!(*program, Program::Ours("uart-16550".into()), "the port of that machine");
}

#[test]
fn all_of_a_service_can_be_said() {
    let text = format!(
        "{}{UART}[[service]]\nname = \"b\"\nprogram = \"./uart\"\nvm = \"b\"\ndevice = \"extra\"\n\
         memory = true\ntime-limit = \"500us\"\ncpus = \"inline\"\n",
        vms(&["", ""])
    );
    let service = &parse_text(&text).unwrap().services[1];
    assert_eq!((service.device, service.vm, service.limit), (ServiceDevice::Extra, Some(1), 500_000));
    assert!(service.memory && !parse_text(&text).unwrap().services[0].memory);
    assert_eq!(service.program.value, Program::File("dir/./uart".into()));
}

#[test]
fn services_have_cpus_of_their_own() {
    let own = |more: &str| format!("{}{UART}{more}", vms(&["", ""]));
    let cpus = |text: &str| {
        let config = parse_text(text).unwrap();
        let of_vms: Vec<_> = config.vms.iter().map(|vm| vm.cpus.clone()).collect();
        (config.machine.cpus, of_vms, config.services[0].cpu)
    };
    assert_eq!(cpus(&own("")), (2, vec![vec![0], vec![1]], None));
    assert_eq!(cpus(&own("cpus = [2]\n")), (3, vec![vec![0], vec![1]], Some(2)));
    assert_eq!(cpus(&own("cpus = [0]\n")), (3, vec![vec![1], vec![2]], Some(0)), "VMs make room");
    let shared = format!("{}{UART}cpus = [1]\n", vms(&[SHARED, SHARED]));
    assert_eq!(cpus(&shared), (2, vec![vec![0], vec![0]], Some(1)));
    let both = own("cpus = [2]\n[[service]]\nname = \"b\"\nprogram = \"uart\"\nvm = \"b\"\ncpus = [2]\n");
    assert_eq!(cpus(&both).0, 3, "services share one");
    let named = format!("{}{UART}cpus = [1]\n", vms(&["cpus = [1]\n", ""]));
    expect(&named, &[("1", "CPU 1 belongs to the VM `a`: `console` cannot have it", "that no VM has")]);
    for (list, count) in [("[]", "0"), ("[2, 3]", "2")] {
        expect(&own(&format!("cpus = {list}\n")), &[(list, &format!("not on {count}"), "the one CPU")]);
    }
    expect(&own("cpus = [-1]\n"), &[("-1", "must not be negative", "0 or more")]);
    expect(&own("cpus = [100000]\n"), &[("100000", "there is no CPU 100000", "")]);
    let disk = "disks = [\"d\"]\nnetworks = [\"n\"]\n";
    let tables =
        "[[disk]]\nname = \"d\"\nsize = \"1MiB\"\ncpus = [1]\n[[network]]\nname = \"n\"\ncpus = [2]\n";
    let config = parse_text(&format!("{}{tables}", vms(&[disk]))).unwrap();
    assert_eq!(config.services.iter().map(|service| service.cpu).collect::<Vec<_>>(), [Some(1), Some(2)]);
}

#[test]
fn services_do_not_keep_realtime_vms_waiting() {
    let beside = |first: &str, second: &str| format!("{}{UART}", vms(&[first, second]));
    let (fair, realtime) = (SHARED.to_owned(), format!("{SHARED}realtime = 5\n"));
    let text = beside(&fair, &realtime);
    expect(&text, &[("\"a\"", "may keep the real-time VM `b` waiting", "beside-realtime = true")]);
    let said = parse_text(&format!("{text}beside-realtime = true\n"));
    assert!(said.is_ok(), "{said:?}");
    expect(
        &beside(&format!("{SHARED}realtime = 4\n"), &realtime),
        &[("\"a\"", "may keep", "CPUs of their own")],
    );
    // Its own service is its own; the others come behind it anyway.
    for (first, second) in [(&realtime, &realtime), (&realtime, &fair), (&fair, &fair)] {
        assert!(parse_text(&beside(first, second)).is_ok(), "{first}{second}");
    }
    let own = format!("{text}cpus = [3]\n");
    expect(&own, &[("\"a\"", "may keep the real-time VM `b` waiting", "CPUs of their own by `cpus`")]);
    assert!(parse_text(&format!("{own}beside-realtime = true\n")).is_ok(), "who waits for its answers");
    let apart = beside(&format!("{SHARED}cpus = [0]\n"), &format!("{realtime}cpus = [1]\n"));
    assert!(parse_text(&apart).is_ok());
}

#[test]
fn mistakes_in_services_are_shown() {
    expect(
        &with("[[service]]\n"),
        &[
            ("[[service]]", "`name` is missing", "\"console\""),
            ("[[service]]", "`program` is missing", "path of an ELF file"),
            ("[[service]]", "`vm` is missing", "the VM that it serves"),
        ],
    );
    expect(&with(&UART.replace("console", "C")), &[("\"C\"", "cannot be a service's name", "a-z")]);
    expect(
        &with(&UART.replace("\"uart\"", "\"uert\"")),
        &[("\"uert\"", "no service program `uert`", "`uart`")],
    );
    expect(&with(&UART.replace("\"a\"", "\"b\"")), &[("\"b\"", "there is no VM `b`", "a")]);
    expect(&with(&format!("{UART}prog = 1\n")), &[("prog", "unknown key `prog`", "`program`")]);
    expect(&with(&format!("{UART}device = \"extro\"\n")), &[("\"extro\"", "`device` cannot be", "`extra`")]);
    expect(&with(&format!("{UART}cpus = \"own\"\n")), &[("\"own\"", "`cpus` cannot be `own`", "inline")]);
    for time in ["99us", "1001ms"] {
        let text = with(&format!("{UART}time-limit = \"{time}\"\n"));
        expect(&text, &[(&format!("\"{time}\""), "cannot have", "100us to 1s")]);
    }
    expect(&with(&format!("{UART}time-limit = \"fast\"\n")), &[("\"fast\"", "is not a time", "2ms")]);
    expect(&with("[service]\nname = \"x\"\n"), &[("service", "is a list of tables", "[[service]]")]);
    expect(
        &with(&format!("{UART}{UART}device = \"extra\"\n")),
        &[("\"console\"", "two services with the name `console`", "its own")],
    );
    let on_demand = format!("{MINIMAL}mapping = \"on-demand\"\n{UART}memory = true\n");
    assert!(parse_text(&on_demand).is_ok());
    let second = UART.replace("console", "second");
    expect(
        &with(&format!("{UART}{second}")),
        &[("[[service]]", "`console` is the device `uart` of the VM `a` already", "another `device`")],
    );
}
