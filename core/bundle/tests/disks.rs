// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks are read back, and wrong ones are refused.

use turnstile_bundle::{
    Bundle, BundleError, CpuList, DiskSpec, Machine, Mapping, OnCrash, Schedule, ServiceDevice, ServiceSpec,
    VmSpec, write_with,
};
use turnstile_service::image::{AARCH64, Header, PAGE};

fn vm(name: &'static str, list: &'static [u16]) -> VmSpec<'static> {
    VmSpec {
        name,
        vcpus: list.len(),
        cpus: CpuList::new(list),
        schedule: Schedule::Pinned,
        memory: 64 << 20,
        mapping: Mapping::AtStart,
        machine: Machine::default(),
        on_crash: OnCrash::Stop,
        statistics: false,
        cmdline: "",
        kernel: b"kernel",
        initrd: None,
    }
}

fn program() -> Vec<u8> {
    let header = Header { isa: AARCH64, code: PAGE, stack: PAGE, ..Header::default() };
    let mut program = header.bytes().to_vec();
    program.resize(2 * PAGE as usize, 0);
    program
}

const ROOT: DiskSpec<'static> = DiskSpec { name: "root", image: Some(b"image"), size: 512, read_only: false };
const TEXT: DiskSpec<'static> = DiskSpec { name: "text", image: None, size: 1 << 38, read_only: true };

/// The service that is a disk of a VM.
fn service<'a>(program: &'a [u8], name: &'a str, vm: usize, disk: usize) -> ServiceSpec<'a> {
    let device = ServiceDevice::Pci;
    let vm = Some(vm);
    ServiceSpec { name, program, vm, device, limit: ServiceSpec::LIMIT, memory: true, disk: Some(disk) }
}

#[test]
fn disks_read_back() {
    let (vms, program) = ([vm("a", &[0]), vm("b", &[1])], program());
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
    let (vms, program) = ([vm("a", &[0]), vm("b", &[1])], program());
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
    let (vms, program) = ([vm("a", &[0])], program());
    let blob = write_with(&vms, &[service(&program, "root", 0, 0)], &[ROOT, TEXT], &[]).unwrap();
    let digest = 76..84;
    let mut read = 0;
    let start = blob.windows(4).position(|bytes| bytes == b"vms\0").unwrap().next_multiple_of(4);
    // Each word behind the images as others that mean something in the format.
    for at in (start..blob.len()).step_by(4) {
        for word in [0, 3, 9, u32::MAX] {
            let mut changed = blob.clone();
            let Some(place) = changed.get_mut(at..at + 4) else { continue };
            place.copy_from_slice(&word.to_be_bytes());
            changed[digest.clone()].fill(0);
            let sum = xxhash_rust::xxh64::xxh64(&changed, 0);
            changed[digest.clone()].copy_from_slice(&sum.to_be_bytes());
            if let Ok(bundle) = Bundle::parse(&changed) {
                read += 1;
                let again = write_with(bundle.vms(), bundle.services(), bundle.disks(), bundle.ports());
                assert!(again.is_ok(), "word {word:#x} at {at}");
            }
        }
    }
    assert!(read > 10, "{read} read");
}
