// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services are read back, and wrong ones are refused.

mod common;

use common::{program, vm};
use turnstile_bundle::{Bundle, BundleError, ServiceDevice, ServiceSpec, write, write_with};
use turnstile_service::image::{AARCH64, PPC64};

#[test]
fn services_read_back() {
    let (vms, program) = ([vm("a", &[0]), vm("b", &[1])], program(AARCH64));
    let console = ServiceSpec {
        name: "console",
        program: &program,
        vm: Some(0),
        device: ServiceDevice::Uart,
        limit: ServiceSpec::LIMIT,
        memory: false,
        disk: None,
        joins: None,
        uplink: None,
        ports: "",
        cpu: None,
    };
    let services = [
        console,
        ServiceSpec {
            name: "extra",
            device: ServiceDevice::Extra,
            limit: 1_000_000_000,
            vm: Some(1),
            memory: true,
            cpu: Some(7),
            ..console
        },
    ];
    let blob = write_with(&vms, &services, &[], &[], 0).unwrap();
    let bundle = Bundle::parse(&blob).unwrap();
    assert_eq!(bundle.services(), services);
    assert_eq!(bundle.vms(), vms);
    assert_eq!(bundle.services()[0].program.as_ptr(), bundle.services()[1].program.as_ptr(), "stored once");
    let without = write(&vms).unwrap();
    assert_eq!(Bundle::parse(&without).unwrap().services(), []);
    assert_eq!(write_with(&vms, &[], &[], &[], 0).unwrap(), without);
}

#[test]
fn wrong_services_are_refused() {
    let (vms, program, other) = ([vm("a", &[0]), vm("b", &[1])], program(AARCH64), program(PPC64));
    let good = ServiceSpec {
        name: "console",
        program: &program,
        vm: Some(0),
        device: ServiceDevice::Uart,
        limit: 100_000,
        memory: false,
        disk: None,
        joins: None,
        uplink: None,
        ports: "",
        cpu: None,
    };
    let problem =
        |services: &[ServiceSpec<'_>]| write_with(&vms, services, &[], &[], 0).unwrap_err().to_string();
    let one = |change: fn(&mut ServiceSpec<'_>)| {
        let mut service = good;
        change(&mut service);
        problem(&[service])
    };
    assert_eq!(
        one(|service| service.name = "No"),
        "service `No`: its name contains 'N'; use only a-z, 0-9 and `-`"
    );
    assert_eq!(
        one(|service| service.vm = Some(2)),
        "service `console`: it serves VM 2, which does not exist"
    );
    assert_eq!(
        one(|service| service.cpu = Some(1)),
        "service `console`: it runs on CPU 1, which VM 1 has; name one that no VM has"
    );
    assert_eq!(
        one(|service| service.cpu = Some(512)),
        "service `console`: it runs on CPU 512; numbers are below 512"
    );
    assert!(one(|service| service.limit = 99_999).contains("100 microseconds to 1 second"));
    assert!(one(|service| service.limit = 1_000_000_001).contains("1000000001 ns"));
    assert!(one(|service| service.program = b"#!/bin/sh").contains("it is not the program of a service"));
    assert!(
        problem(&[ServiceSpec { program: &other, ..good }])
            .contains("for another architecture (ELF machine 21)")
    );
    assert!(problem(&[good, ServiceSpec { vm: Some(1), ..good }]).contains("service 0 has the same name"));
    assert!(problem(&[good, ServiceSpec { name: "b", ..good }]).contains("the same device of the same VM"));
    assert!(write_with(&vms, &[good, ServiceSpec { name: "b", vm: Some(1), ..good }], &[], &[], 0).is_ok());
    assert_eq!(write_with(&vms, &[good; 33], &[], &[], 0), Err(BundleError::TooManyServices(33)));
}

#[test]
fn entropy_devices_read_back_and_wrong_ones_are_refused() {
    let (vms, program) = ([vm("a", &[0]), vm("b", &[1])], program(AARCH64));
    let entropy = ServiceSpec {
        name: "entropy-a",
        program: &program,
        vm: Some(0),
        device: ServiceDevice::Entropy,
        limit: ServiceSpec::LIMIT,
        memory: true,
        disk: None,
        joins: None,
        uplink: None,
        ports: "",
        cpu: None,
    };
    let other = ServiceSpec { name: "entropy-b", vm: Some(1), ..entropy };
    let console = ServiceSpec { name: "console-a", device: ServiceDevice::Console, ..entropy };
    let services = [entropy, other, console];
    let blob = write_with(&vms, &services, &[], &[], 0).unwrap();
    assert_eq!(Bundle::parse(&blob).unwrap().services(), services);

    let problem =
        |services: &[ServiceSpec<'_>]| write_with(&vms, services, &[], &[], 0).unwrap_err().to_string();
    let blind = ServiceSpec { memory: false, ..entropy };
    assert!(problem(&[blind]).contains("its device is `entropy`, so it must reach its VM's memory"));
    let blind = ServiceSpec { memory: false, ..console };
    assert!(problem(&[blind]).contains("its device is `console`, so it must reach its VM's memory"));
    let second = ServiceSpec { name: "second", ..console };
    assert!(problem(&[console, second]).contains("the same device of the same VM"));
    let ports =
        ServiceSpec { name: "ports-a", device: ServiceDevice::Ports, ports: "agent a.b-c_1", ..entropy };
    let blob = write_with(&vms, &[ports], &[], &[], 0).unwrap();
    assert_eq!(Bundle::parse(&blob).unwrap().services()[0], ports);
    assert!(ports.port_names().eq(["agent", "a.b-c_1"]) && entropy.port_names().next().is_none());
    let many: Vec<String> = (0..14).map(|number| format!("p{number}")).collect();
    for (names, what) in [
        ("", "if its device is `ports`, and only then"),
        (&many.join(" "), "it has 14 ports; give it at most 13"),
        ("a  b", "port 1 has no name that can be"),
        ("a ..", "port 1 has no name that can be"),
        ("Agent", "port 0 has no name that can be"),
        ("a-name-of-thirty-two-characters-1", "port 0 has no name that can be: 1 to 31 of"),
        ("a b c b", "ports 1 and 3 have the same name"),
    ] {
        assert!(problem(&[ServiceSpec { ports: names, ..ports }]).contains(what), "{names}");
    }
    assert!(problem(&[ServiceSpec { ports: "a", ..console }]).contains("and only then"));
    assert!(problem(&[ServiceSpec { memory: false, ..ports }]).contains("its device is `ports`"));
    assert!(problem(&[ServiceSpec { vm: None, ..entropy }]).contains("it serves no VM"));
    assert!(problem(&[ServiceSpec { vm: Some(2), ..entropy }]).contains("VM 2, which does not exist"));
    let second = ServiceSpec { name: "second", ..entropy };
    assert!(problem(&[entropy, second]).contains("the same device of the same VM"));
    let names: Vec<String> = (0..30).map(|number| format!("f{number}")).collect();
    let function = |name| ServiceSpec { name, device: ServiceDevice::Pci, ..entropy };
    let mut all: Vec<ServiceSpec<'_>> = names.iter().map(|name| function(name.as_str())).collect();
    all.push(entropy);
    assert!(problem(&all).contains("too many PCI functions; give it at most 30"));
    all.remove(0);
    assert!(write_with(&vms, &all, &[], &[], 0).is_ok());
}
