// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks are read back, and wrong ones are refused.

mod common;

use common::{program, read_damaged, vm};
use turnstile_bundle::{Bundle, BundleError, DiskSpec, ServiceDevice, ServiceSpec, write_with};
use turnstile_service::image::AARCH64;

const ROOT: DiskSpec<'static> = DiskSpec { name: "root", image: Some(b"image"), size: 512, read_only: false };
const TEXT: DiskSpec<'static> = DiskSpec { name: "text", image: None, size: 1 << 38, read_only: true };

/// The service that is a disk of a VM.
fn service<'a>(program: &'a [u8], name: &'a str, vm: usize, disk: usize) -> ServiceSpec<'a> {
    let device = ServiceDevice::Pci;
    let vm = Some(vm);
    ServiceSpec {
        cpu: None,
        name,
        program,
        vm,
        device,
        limit: ServiceSpec::LIMIT,
        memory: true,
        disk: Some(disk),
        uplink: None,
    }
}

#[test]
fn disks_read_back() {
    let (vms, program) = ([vm("a", &[0]), vm("b", &[1])], program(AARCH64));
    let services = [("root", 0, 0), ("text-a", 0, 1), ("text-b", 1, 1)]
        .map(|(name, vm, disk)| service(&program, name, vm, disk));
    let blob = write_with(&vms, &services, &[ROOT, TEXT], &[]).unwrap();
    let bundle = Bundle::parse(&blob).unwrap();
    assert_eq!(bundle.disks(), [ROOT, TEXT]);
    assert_eq!(bundle.services(), services);
    // Also without services, and what was read before is gone.
    let alone = write_with(&vms, &[], &[TEXT], &[]).unwrap();
    let mut bundle = Bundle::parse(&blob).unwrap();
    bundle.read(&alone).unwrap();
    assert_eq!((bundle.disks(), bundle.services()), (&[TEXT][..], &[][..]));
}

#[test]
fn wrong_disks_are_refused() {
    let vms = [vm("a", &[0])];
    let problem = |disks: &[DiskSpec<'_>]| write_with(&vms, &[], disks, &[]).unwrap_err().to_string();
    let one = |disk: DiskSpec<'_>| problem(&[disk]);
    assert!(one(DiskSpec { name: "Root", ..ROOT }).contains("disk `Root`: its name contains 'R'"));
    assert!(one(DiskSpec { name: "seventeen-letters", ..ROOT }).contains("17 bytes; give one of at most 16"));
    assert!(one(DiskSpec { image: Some(b""), ..ROOT }).contains("its image is empty"));
    assert!(one(DiskSpec { size: 0, ..TEXT }).contains("its size is zero"));
    assert!(one(DiskSpec { size: 513, ..ROOT }).contains("no whole sectors; give a multiple of 512"));
    assert!(one(DiskSpec { image: Some(&[0; 513]), ..ROOT }).contains("do not hold its image's 513"));
    assert!(one(DiskSpec { size: (1 << 38) + 512, ..TEXT }).contains("at most 256 GiB"));
    assert!(one(DiskSpec { size: u64::MAX - 511, ..TEXT }).contains("at most 256 GiB"));
    assert!(problem(&[ROOT, TEXT, ROOT]).contains("disk 0 has the same name"));
    assert_eq!(write_with(&vms, &[], &[ROOT; 17], &[]), Err(BundleError::TooManyDisks(17)));
}

#[test]
fn disks_that_services_cannot_have_are_refused() {
    let (vms, program) = ([vm("a", &[0]), vm("b", &[1])], program(AARCH64));
    let problem = |services: &[ServiceSpec<'_>]| {
        write_with(&vms, services, &[ROOT, TEXT], &[]).unwrap_err().to_string()
    };
    let root = service(&program, "root", 0, 0);
    assert!(problem(&[ServiceSpec { disk: Some(2), ..root }]).contains("disk 2, which does not exist"));
    assert!(problem(&[ServiceSpec { memory: false, ..root }]).contains("must reach its VM's memory"));
    let extra = ServiceSpec { device: ServiceDevice::Extra, ..root };
    assert!(problem(&[extra]).contains("its device must be `pci`"));
    for vm in [0, 1] {
        let other = ServiceSpec { name: "other", vm: Some(vm), ..root };
        assert!(problem(&[root, other]).contains("service 0 has the same disk"), "VM {vm}");
    }
    let names: Vec<String> = (0..31).map(|index| format!("f{index}")).collect();
    let function = |name| ServiceSpec { name, disk: None, ..root };
    let functions: Vec<_> = names.iter().map(|name| function(name.as_str())).collect();
    assert!(problem(&functions).contains("at most 30"));
    assert!(write_with(&vms, &functions[..30], &[], &[]).is_ok());
}

#[test]
fn hostile_descriptions_of_disks_are_refused() {
    let (vms, program) = ([vm("a", &[0])], program(AARCH64));
    let blob = write_with(&vms, &[service(&program, "root", 0, 0)], &[ROOT, TEXT], &[]).unwrap();
    let read = read_damaged(&blob, b"vms\0", &[0, 3, 9, u32::MAX]);
    assert!(read > 10, "{read} read");
}
