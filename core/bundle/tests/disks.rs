// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks are read back, and wrong ones are refused.

mod common;

use common::{program, read_damaged, sign, vm};
use turnstile_bundle::{
    Bundle, BundleError, DiskSpec, Drive, DriveKind, ServiceDevice, ServiceSpec, write_with,
};
use turnstile_service::image::{AARCH64, X86_64};

const ROOT: DiskSpec<'static> =
    DiskSpec { name: "root", image: Some(b"image"), size: 512, read_only: false, writes: None, drive: None };
const TEXT: DiskSpec<'static> =
    DiskSpec { name: "text", image: None, size: 1 << 38, read_only: true, writes: None, drive: None };
const NVME: Drive = Drive { kind: DriveKind::Nvme, number: 0, partition: None, trusted: true };

/// A disk that the machine has.
fn driven(name: &str, drive: Drive) -> DiskSpec<'_> {
    DiskSpec { name, image: None, size: 0, drive: Some(drive), ..ROOT }
}

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
        joins: None,
        uplink: None,
        ports: "",
    }
}

#[test]
fn disks_read_back() {
    let (vms, program) = ([vm("a", &[0]), vm("b", &[1])], program(AARCH64));
    let services = [("root", 0, 0), ("text-a", 0, 1), ("text-b", 1, 1)]
        .map(|(name, vm, disk)| service(&program, name, vm, disk));
    let blob = write_with(&vms, &services, &[ROOT, TEXT], &[], 0).unwrap();
    let bundle = Bundle::parse(&blob).unwrap();
    assert_eq!(bundle.disks(), [ROOT, TEXT]);
    let over = [DiskSpec { writes: Some(4096), ..ROOT }, DiskSpec { writes: None, ..TEXT }];
    let blob_over = write_with(&vms, &[], &over, &[], 0).unwrap();
    assert_eq!(Bundle::parse(&blob_over).unwrap().disks(), over);
    assert_eq!(bundle.services(), services);
    // Also without services, and what was read before is gone.
    let alone = write_with(&vms, &[], &[TEXT], &[], 0).unwrap();
    let mut bundle = Bundle::parse(&blob).unwrap();
    bundle.read(&alone).unwrap();
    assert_eq!((bundle.disks(), bundle.services()), (&[TEXT][..], &[][..]));
}

#[test]
fn wrong_disks_are_refused() {
    let vms = [vm("a", &[0])];
    let problem = |disks: &[DiskSpec<'_>]| write_with(&vms, &[], disks, &[], 0).unwrap_err().to_string();
    let one = |disk: DiskSpec<'_>| problem(&[disk]);
    assert!(one(DiskSpec { name: "Root", ..ROOT }).contains("disk `Root`: its name contains 'R'"));
    assert!(one(DiskSpec { name: "seventeen-letters", ..ROOT }).contains("17 bytes; give one of at most 16"));
    assert!(one(DiskSpec { image: Some(b""), ..ROOT }).contains("its image is empty"));
    assert!(one(DiskSpec { size: 0, ..TEXT }).contains("its size is zero"));
    assert!(one(DiskSpec { size: 513, ..ROOT }).contains("no whole sectors; give a multiple of 512"));
    assert!(one(DiskSpec { image: Some(&[0; 513]), ..ROOT }).contains("do not hold its image's 513"));
    assert!(one(DiskSpec { size: (1 << 38) + 512, ..TEXT }).contains("at most 256 GiB"));
    assert!(one(DiskSpec { size: u64::MAX - 511, ..TEXT }).contains("at most 256 GiB"));
    let over = |writes| DiskSpec { writes: Some(writes), size: 4608, ..ROOT };
    assert!(
        one(DiskSpec { read_only: true, ..over(4096) }).contains("it is read-only and has room for writes")
    );
    for writes in [0, 512, 4097] {
        assert!(one(over(writes)).contains(&format!("{writes} bytes, is no whole clusters")));
    }
    assert!(one(over(8192 + 4096)).contains("12288 bytes, is more than its 4608"));
    assert!(write_with(&vms, &[], &[over(8192)], &[], 0).is_ok(), "the last cluster is not whole");
    assert!(problem(&[ROOT, TEXT, ROOT]).contains("disk 0 has the same name"));
    assert_eq!(write_with(&vms, &[], &[ROOT; 17], &[], 0), Err(BundleError::TooManyDisks(17)));
}

/// What is written takes its room and four bytes for each cluster of that and of the disk.
#[test]
fn a_disk_says_what_memory_it_takes() {
    let image = vec![1; 5 << 20];
    let memory = |disk: DiskSpec<'_>| (disk.memory().own >> 20, disk.memory().shared >> 20);
    let disk = DiskSpec { image: Some(&image), size: 9 << 20, ..ROOT };
    assert_eq!(memory(disk), (10, 0));
    assert_eq!(memory(DiskSpec { read_only: true, ..disk }), (0, 10));
    assert_eq!(memory(DiskSpec { writes: Some(4 << 20), ..disk }), (6, 6));
    // 2^19 + 2^20 entries.
    let large = DiskSpec { image: None, size: 4 << 30, writes: Some(2 << 30), ..ROOT };
    assert_eq!(memory(large), (2048 + 6, 0));
    assert_eq!(memory(driven("root", NVME)), (0, 0));
}

#[test]
fn disks_that_services_cannot_have_are_refused() {
    let (vms, program) = ([vm("a", &[0]), vm("b", &[1])], program(AARCH64));
    let problem = |services: &[ServiceSpec<'_>]| {
        write_with(&vms, services, &[ROOT, TEXT], &[], 0).unwrap_err().to_string()
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
    assert!(write_with(&vms, &functions[..30], &[], &[], 0).is_ok());
}

#[test]
fn disks_of_the_machine_read_back() {
    let (vms, program) = ([vm("a", &[0]), vm("b", &[1])], program(AARCH64));
    let disks = [
        driven("first", NVME),
        driven("part", Drive { kind: DriveKind::Virtio, partition: Some(128), trusted: false, ..NVME }),
        DiskSpec { read_only: true, ..driven("last", Drive { number: 15, partition: Some(1), ..NVME }) },
        TEXT,
    ];
    let services = [("first", 0, 0), ("part", 1, 1), ("last", 1, 2)]
        .map(|(name, vm, disk)| service(&program, name, vm, disk));
    let blob = write_with(&vms, &services, &disks, &[], 0).unwrap();
    let bundle = Bundle::parse(&blob).unwrap();
    assert_eq!((bundle.disks(), bundle.services()), (&disks[..], &services[..]));
}

#[test]
fn wrong_disks_of_the_machine_are_refused() {
    let vms = [vm("a", &[0])];
    let problem = |disks: &[DiskSpec<'_>]| write_with(&vms, &[], disks, &[], 0).unwrap_err().to_string();
    let one = |drive| problem(&[driven("root", drive)]);
    assert!(
        one(Drive { number: 16, ..NVME }).contains("there is no disk controller 16; numbers are below 16")
    );
    for partition in [0, 129, u32::MAX] {
        let said = one(Drive { partition: Some(partition), ..NVME });
        assert!(said.contains(&format!("no partition {partition}; numbers are from 1 to 128")), "{said}");
    }
    let root = driven("root", NVME);
    for disk in [
        DiskSpec { size: 512, ..root },
        DiskSpec { image: Some(b"image"), ..root },
        DiskSpec { writes: Some(4096), ..root },
    ] {
        assert!(problem(&[disk]).contains("give it no image, no size and no room for writes"));
    }
    let other = driven("other", Drive { partition: Some(2), ..NVME });
    for disks in [[TEXT, root, other], [TEXT, other, root]] {
        let whole = problem(&disks);
        assert!(
            whole.contains("disk 1 is behind the same controller, and one of both is the whole"),
            "{whole}"
        );
    }
    let part = |name, partition| driven(name, Drive { partition: Some(partition), ..NVME });
    let readable = |disk: DiskSpec<'static>| DiskSpec { read_only: true, ..disk };
    let (one, two) = (part("one", 1), part("two", 1));
    for disks in [[one, two], [readable(one), two], [one, readable(two)]] {
        assert!(problem(&disks).contains("disk `two`: disk 0 is the same part of the same disk"));
    }
    for disks in [[readable(one), readable(two)], [readable(root), readable(driven("again", NVME))]] {
        assert!(write_with(&vms, &[], &disks, &[], 0).is_ok());
    }
    let untrusted = driven("two", Drive { partition: Some(2), trusted: false, ..NVME });
    assert!(problem(&[one, untrusted]).contains("one of both is trusted; trust both or none"));
    let kind = driven("kind", Drive { kind: DriveKind::Virtio, ..NVME });
    let number = driven("number", Drive { number: 1, ..NVME });
    assert!(write_with(&vms, &[], &[root, kind, number], &[], 0).is_ok());
}

/// Disks behind one controller, and the services that have them.
fn shared<'a>(program: &'a [u8]) -> ([DiskSpec<'a>; 4], [ServiceSpec<'a>; 4]) {
    let part = |name, partition| driven(name, Drive { partition: Some(partition), ..NVME });
    let disks = [ROOT, part("one", 1), part("two", 2), DiskSpec { read_only: true, ..part("three", 3) }];
    let first = service(program, "nvme0", 0, 1);
    let joined = |name, vm, disk| ServiceSpec { joins: Some(1), ..service(program, name, vm, disk) };
    let services = [service(program, "root", 0, 0), first, joined("two", 1, 2), joined("three", 0, 3)];
    (disks, services)
}

#[test]
fn a_controller_has_one_service_which_others_join() {
    let (vms, program) = ([vm("a", &[0]), vm("b", &[1])], program(AARCH64));
    let (disks, services) = shared(&program);
    let blob = write_with(&vms, &services, &disks, &[], 0).unwrap();
    let bundle = Bundle::parse(&blob).unwrap();
    assert_eq!((bundle.disks(), bundle.services()), (&disks[..], &services[..]));
    // A disk that is only read, of both VMs.
    let other = ServiceSpec { name: "other", vm: Some(1), ..services[3] };
    let [root, first, two, three] = services;
    assert!(write_with(&vms, &[root, first, two, three, other], &disks, &[], 0).is_ok());
}

#[test]
fn who_cannot_join_a_service_is_refused() {
    let (vms, other_program) = ([vm("a", &[0]), vm("b", &[1])], program(X86_64));
    let program = program(AARCH64);
    let (disks, [root, first, two, three]) = shared(&program);
    let problem = |services: &[ServiceSpec<'_>]| {
        write_with(&vms, services, &disks, &[], 0).expect_err("it is refused").to_string()
    };
    for read_only in [two, three] {
        let alone = ServiceSpec { joins: None, ..read_only };
        assert!(problem(&[root, first, alone]).contains("service 1 drives the controller of its disk"));
    }
    assert!(problem(&[root, first, two, ServiceSpec { name: "again", ..two }]).contains("has the same disk"));
    for (joins, services) in [
        (0, [root, first, ServiceSpec { joins: Some(0), ..two }]),
        (2, [root, first, ServiceSpec { joins: Some(2), ..two }]),
        (u32::MAX as usize, [root, first, ServiceSpec { joins: Some(u32::MAX as usize), ..two }]),
        (1, [root, ServiceSpec { joins: Some(1), ..first }, two]),
        (0, [root, ServiceSpec { joins: Some(0), name: "text", ..root }, first]),
    ] {
        // The disk of memory is written, and so for one service in any case.
        let services = services.map(|service| ServiceSpec {
            disk: if service.name == "text" { None } else { service.disk },
            ..service
        });
        let said = problem(&services);
        assert!(said.contains(&format!("it joins service {joins}; name the first one")), "{said}");
    }
    let longer = ServiceSpec { limit: 5_000_000, ..two };
    let elsewhere = ServiceSpec { cpu: Some(7), ..two };
    let mut changed = program.clone();
    *changed.last_mut().unwrap() ^= 1;
    let another = ServiceSpec { program: &changed, ..two };
    for differs in [longer, elsewhere, another] {
        assert!(problem(&[root, first, differs]).contains("it joins service 1; give both the same program"));
    }
    let foreign = ServiceSpec { program: &other_program, ..two };
    assert!(problem(&[root, first, foreign]).contains("its program cannot be used"));
    let names: Vec<String> = (0..8).map(|number| format!("reads-{number}")).collect();
    let reads = names.iter().map(|name| ServiceSpec { name, ..three });
    let all: Vec<_> = [root, first].into_iter().chain(reads).collect();
    assert!(problem(&all).contains("too many disks; give it at most 8"));
    assert!(write_with(&vms, &all[..9], &disks, &[], 0).is_ok());
}

#[test]
fn what_is_said_of_a_controller_needs_one() {
    let vms = [vm("a", &[0])];
    let mut blob = write_with(&vms, &[], &[driven("root", NVME)], &[], 0).unwrap();
    // The property `drive` becomes words that mean nothing (FDT_NOP).
    let value = blob.windows(8).position(|bytes| bytes == b"nvme\0\0\0\0").unwrap();
    for word in blob[value - 12..value + 8].chunks_exact_mut(4) {
        word.copy_from_slice(&4_u32.to_be_bytes());
    }
    sign(&mut blob);
    assert_eq!(Bundle::parse(&blob).err(), Some(BundleError::Malformed("where a disk is")));
}

#[test]
fn hostile_descriptions_of_disks_are_refused() {
    let (vms, program) = ([vm("a", &[0])], program(AARCH64));
    let here = driven("here", Drive { partition: Some(2), ..NVME });
    let beside = driven("beside", Drive { partition: Some(3), ..NVME });
    let joined = ServiceSpec { joins: Some(1), ..service(&program, "beside", 0, 4) };
    let services = [service(&program, "root", 0, 0), service(&program, "here", 0, 2), joined];
    let blob = write_with(
        &vms,
        &services,
        &[ROOT, TEXT, here, DiskSpec { name: "over", writes: Some(4096), ..ROOT }, beside],
        &[],
        0,
    )
    .unwrap();
    let read = read_damaged(&blob, b"vms\0", &[0, 2, 3, 9, u32::MAX]);
    assert!(read > 10, "{read} read");
}
