// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Networks and their ports are read back, and wrong ones are refused.

mod common;

use common::{program, read_damaged};
use turnstile_bundle::{
    Bundle, BundleError, DiskSpec, Mapping, PortSpec, Schedule, ServiceDevice, ServiceSpec, Uplink, VmSpec,
    ports_of, write_with,
};
use turnstile_service::image::{AARCH64, PPC64};

/// A VM that shares a CPU with all others.
fn vm(name: &str) -> VmSpec<'_> {
    let schedule = Schedule::Shared(turnstile_bundle::Class::Fair { weight: 100 });
    VmSpec { name, schedule, ..common::vm("", &[0]) }
}

fn network<'a>(program: &'a [u8], name: &'a str) -> ServiceSpec<'a> {
    ServiceSpec {
        cpu: None,
        name,
        program,
        vm: None,
        device: ServiceDevice::Network,
        limit: ServiceSpec::LIMIT,
        memory: true,
        disk: None,
        joins: None,
        uplink: None,
        ports: "",
    }
}

/// A PCI function of the first VM.
fn function<'a>(program: &'a [u8], name: &'a str) -> ServiceSpec<'a> {
    ServiceSpec { vm: Some(0), device: ServiceDevice::Pci, ..network(program, name) }
}

/// The port of a VM on a network, with an address of its own.
fn port(service: usize, vm: usize) -> PortSpec {
    let mac = [0x02, 0, 0, 0, service as u8, vm as u8];
    PortSpec { service, vm, mac, guard: true, isolated: false, rate: None, queues: 1 }
}

#[test]
fn networks_read_back() {
    let (vms, program) = (["a", "b", "c"].map(vm), program(AARCH64));
    let services = [network(&program, "lan"), function(&program, "own"), network(&program, "other")];
    let ports = [
        PortSpec { guard: false, rate: Some(64_000), ..port(0, 2) },
        PortSpec { isolated: true, rate: Some(1_000_000_000_000), queues: 4, ..port(0, 0) },
        PortSpec { mac: port(0, 0).mac, ..port(2, 0) },
    ];
    let blob = write_with(&vms, &services, &[], &ports, 0).unwrap();
    let without = write_with(&vms, &[], &[], &[], 0).unwrap();
    let mut bundle = Bundle::parse(&blob).unwrap();
    assert_eq!((bundle.services(), bundle.ports()), (&services[..], &ports[..]));
    assert_eq!(ports_of(bundle.ports(), 0), &ports[..2]);
    assert_eq!(ports_of(bundle.ports(), 1), []);
    assert_eq!(ports_of(bundle.ports(), 2), &ports[2..]);
    assert_eq!(ports_of(bundle.ports(), 3), []);
    // What was read before is gone.
    bundle.read(&without).unwrap();
    assert_eq!(bundle.ports(), []);
}

#[test]
fn an_uplink_is_a_networks_and_nobody_elses() {
    let (vms, program) = (["a", "b"].map(vm), program(AARCH64));
    let uplink = |card, trusted| Some(Uplink { card, trusted });
    let lan = ServiceSpec { uplink: uplink(15, true), ..network(&program, "lan") };
    let other = ServiceSpec { uplink: uplink(0, false), ..network(&program, "other") };
    let write = |services: &[ServiceSpec<'_>]| {
        write_with(&vms, services, &[], &[port(0, 0), port(1, 1)], 0).map_err(|error| error.to_string())
    };
    let blob = write(&[lan, other]).unwrap();
    assert_eq!(Bundle::parse(&blob).unwrap().services(), [lan, other]);
    let refused = |service| write(&[service, other]).unwrap_err();
    assert!(refused(ServiceSpec { uplink: uplink(16, true), ..lan }).contains("there is no network card 16"));
    let same = write(&[lan, ServiceSpec { uplink: lan.uplink, ..other }]).unwrap_err();
    assert_eq!(same, "service `other`: service 0 has the same network card; give each its own");
    let device = ServiceSpec { uplink: lan.uplink, ..function(&program, "own") };
    assert!(refused(device).contains("it has an uplink, so its device must be `network`"));
}

#[test]
fn wrong_networks_are_refused() {
    let (mut vms, program) = (["a", "b"].map(vm), program(AARCH64));
    let disk = DiskSpec { name: "root", image: None, size: 512, read_only: false, writes: None, drive: None };
    let lan = network(&program, "lan");
    let problem = |service: ServiceSpec<'_>| {
        let written = write_with(&vms, &[service], &[disk], &[port(0, 0), port(0, 1)], 0);
        written.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(problem(lan), Ok(()));
    let refused = |service| problem(service).unwrap_err();
    assert_eq!(
        refused(ServiceSpec { vm: Some(0), ..lan }),
        "service `lan`: it is a network, whose VMs its ports name; name none of its own"
    );
    assert_eq!(
        refused(ServiceSpec { memory: false, ..lan }),
        "service `lan`: it is a network, so it must reach its VMs' memory"
    );
    assert!(refused(ServiceSpec { disk: Some(0), ..lan }).contains("its device must be `pci`"));
    for device in [ServiceDevice::Uart, ServiceDevice::Extra, ServiceDevice::Pci] {
        let alone = ServiceSpec { device, ..lan };
        assert!(refused(alone).contains("it serves no VM; name one, or make its device `network`"));
    }
    let unused = write_with(&vms, &[lan, network(&program, "other")], &[], &[port(0, 0)], 0).unwrap_err();
    assert!(unused.to_string().contains("service `other`: it is a network without ports"));
    vms[1].mapping = Mapping::OnDemand;
    assert!(write_with(&vms, &[lan], &[], &[port(0, 0), port(0, 1)], 0).is_ok(), "its memory may come later");
}

#[test]
fn wrong_ports_are_refused() {
    let names: Vec<String> = (0..10).map(|index| format!("vm-{index}")).collect();
    let vms: Vec<_> = names.iter().map(|name| vm(name)).collect();
    let (program, other) = (program(AARCH64), program(PPC64));
    let services = [network(&program, "lan"), network(&program, "other"), function(&program, "own")];
    let last = port(1, 9);
    let problem = |ports: &[PortSpec]| write_with(&vms, &services, &[], ports, 0).unwrap_err().to_string();
    let one = |port: PortSpec| problem(&[port, last]);
    assert!(problem(&[last, port(3, 0)]).contains("port 1: it is of service 3, which does not exist"));
    assert!(problem(&[last, port(2, 0)]).contains("port 1: it is of service 2, which is no network"));
    assert!(one(port(0, 10)).contains("port 0: it is of VM 10, which does not exist"));
    assert!(one(PortSpec { mac: [0; 6], ..port(0, 0) }).contains("its address is zero"));
    for mac in [[0xff; 6], [0x01, 0, 0x5e, 0, 0, 1]] {
        assert!(one(PortSpec { mac, ..port(0, 0) }).contains("give one whose first byte is even"));
    }
    for queues in [0, 5, u16::MAX] {
        let said = one(PortSpec { queues, ..port(0, 0) });
        assert!(said.contains(&format!("it has {queues} pairs of queues; give it 1 to 4")), "{said}");
    }
    for rate in [0, 63_999, 1_000_000_000_001, u64::MAX] {
        let said = one(PortSpec { rate: Some(rate), ..port(0, 0) });
        assert!(said.contains(&format!("{rate} bits per second; give 64 kbit/s to 1 Tbit/s")), "{said}");
    }
    assert!(problem(&[last, port(0, 0)]).contains("port 1: it follows a port of a later service"));
    let first = port(0, 0);
    let same_vm = PortSpec { mac: [2; 6], ..last };
    assert!(problem(&[first, last, same_vm]).contains("port 2: port 1 is of the same VM"));
    let same_mac = PortSpec { vm: 8, ..last };
    assert!(problem(&[first, last, same_mac]).contains("port 2: port 1 has the same address"));
    let mut many: Vec<_> = (0..9).map(|vm| port(0, vm)).chain([last]).collect();
    assert!(problem(&many).contains("port 8: its network has too many ports; give it at most 8"));
    many.remove(8);
    assert!(write_with(&vms, &services, &[], &many, 0).is_ok());
    assert_eq!(write_with(&vms, &services, &[], &[first; 65], 0), Err(BundleError::TooManyPorts(65)));
    let foreign = write_with(&vms, &[network(&other, "lan")], &[], &[first], 0).unwrap_err().to_string();
    assert!(foreign.contains("port 0: its network's program cannot be used for its VM: "), "{foreign}");
}

#[test]
fn a_vm_has_so_many_functions_of_all_kinds() {
    let (vms, program) = (["a", "b"].map(vm), program(AARCH64));
    let names: Vec<String> = (0..29).map(|index| format!("f{index}")).collect();
    let functions = names.iter().map(|name| function(&program, name));
    let networks = ["lan", "other"].map(|name| network(&program, name));
    let services: Vec<_> = functions.chain(networks).collect();
    let problem = |last| write_with(&vms, &services, &[], &[port(29, 0), last], 0).map(|_| ());
    assert_eq!(problem(port(30, 1)), Ok(()));
    let said = problem(port(30, 0)).unwrap_err().to_string();
    assert_eq!(said, "port 1: its VM has too many PCI functions; give it at most 30");
}

#[test]
fn hostile_descriptions_of_ports_are_refused() {
    let (vms, program) = (["a", "b"].map(vm), program(AARCH64));
    let services = [network(&program, "lan"), network(&program, "other")];
    let ports = [PortSpec { rate: Some(1 << 32), ..port(0, 0) }, port(0, 1), port(1, 1)];
    let blob = write_with(&vms, &services, &[], &ports, 0).unwrap();
    let read = read_damaged(&blob, b"services\0", &[0, 1, 3, 9, 0x0200_0000, u32::MAX]);
    assert!(read > 10, "{read} read");
}
