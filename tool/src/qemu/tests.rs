// SPDX-License-Identifier: Apache-2.0 OR MIT

use turnstile_bundle::DriveKind;

use super::*;

#[test]
fn command_can_be_pasted_into_a_shell() {
    let mut boot = Boot::new("a b/image".into(), "bundle".into(), 1 << 30, 4);
    boot.append = "link=framed it's".into();
    let shown = boot.shown(Path::new("qemu"));
    assert!(shown.contains("-kernel 'a b/image'"), "{shown}");
    assert!(shown.contains(r"-append 'link=framed it'\''s'"), "{shown}");
    assert!(shown.contains("-smp 4"), "{shown}");
    assert!(shown.contains("-m 1024M"), "{shown}");
    assert!(!shown.contains("icount"), "{shown}");
}

#[test]
fn a_board_is_as_it_is() {
    let mut boot = Boot::new("i".into(), "b".into(), 1 << 30, 2);
    boot.board = Board::Rpi4;
    boot.dtb = Some("pi.dtb".into());
    let shown = boot.shown(Path::new("qemu"));
    assert!(shown.contains("-machine raspi4b") && shown.contains("-dtb pi.dtb"), "{shown}");
    assert!(["-cpu", "-smp", "-m "].iter().all(|option| !shown.contains(option)), "{shown}");
}

#[test]
fn a_pc_is_asked_for_by_its_name() {
    let mut boot = Boot::new("h.elf".into(), "b".into(), 1 << 30, 2);
    (boot.board, boot.cpu) = (Board::Microvm, "EPYC,-x2apic".to_owned());
    let shown = boot.shown(Path::new("qemu"));
    let machine = "-machine microvm \\\n    -cpu EPYC,-x2apic \\\n    -smp 2 \\\n    -m 1024M";
    assert!(shown.contains(machine) && shown.contains("-kernel h.elf"), "{shown}");
    assert!(!shown.contains("gic") && !shown.contains("virtualization"), "{shown}");
    boot.virtualization = false;
    assert!(boot.shown(Path::new("qemu")).contains("-cpu EPYC,-x2apic,-svm"));
}

#[test]
fn a_power_machine_has_a_long_bundle_behind_its_firmware() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("a,bundle");
    let shown = |length: u64| {
        std::fs::File::create(&bundle).unwrap().set_len(length).unwrap();
        let mut boot = Boot::new("i".into(), bundle.clone(), 4 << 30, 1);
        boot.board = Board::Powernv9;
        boot.shown(Path::new("qemu"))
    };
    let short = shown(128 << 20);
    assert!(short.contains("-initrd") && short.contains("-append link=framed "), "{short}");
    let long = shown((128 << 20) + 1);
    assert!(!long.contains("-initrd") && long.contains("link=framed bundle=0x40000000+0x8000001"), "{long}");
    assert!(long.contains("-device loader,force-raw=on,addr=0x40000000,file=") && long.contains("a,,bundle"));
}

#[test]
fn network_cards_are_on_networks_of_qemus_own() {
    let mut boot = Boot::new("i".into(), "b".into(), 1 << 30, 1);
    assert!(!boot.shown(Path::new("qemu")).contains("-netdev"));
    boot.cards = vec![NetworkCard::E1000e, NetworkCard::Virtio];
    boot.forwards = vec![Forward { host: 2222, guest: 22 }, Forward { host: 8080, guest: 80 }];
    let shown = boot.shown(Path::new("qemu"));
    let first = "-netdev user,id=net0,hostfwd=tcp:127.0.0.1:2222-:22,hostfwd=tcp:127.0.0.1:8080-:80 ";
    assert!(shown.contains(first) && shown.contains("-netdev user,id=net1 "), "{shown}");
    assert!(shown.contains("-device e1000e,netdev=net0,romfile="), "{shown}");
    assert!(shown.contains("-device virtio-net-pci,netdev=net1,romfile="), "{shown}");
    boot.wired = true;
    let shown = boot.shown(Path::new("qemu"));
    assert!(!shown.contains("user,id="), "{shown}");
    assert!(["net0", "net1"].iter().all(|net| shown.contains(&format!("hubport,id={net},hubid=0 "))));
    boot.board = Board::Powernv9;
    let shown = boot.shown(Path::new("qemu"));
    let bridge = "-device pnv-phb,id=phb1,chip-id=0,index=1 ";
    assert!(
        shown.contains(bridge) && shown.contains("-device pnv-phb-root-port,id=port1,bus=phb1 "),
        "{shown}"
    );
    assert!(shown.contains("-device e1000e,netdev=net0,romfile=,bus=port0"), "{shown}");
    assert!(shown.contains("netdev=net1,romfile=,bus=port1"), "{shown}");
}

#[test]
fn disks_are_behind_controllers_and_a_flush_reaches_their_files() {
    let mut boot = Boot::new("i".into(), "b".into(), 1 << 30, 1);
    let behind = |file: &str, is_qcow2, read_only| {
        Some(Behind::File { file: file.into(), is_qcow2, read_only, serial: "root".into() })
    };
    boot.cards = vec![NetworkCard::Virtio];
    boot.drives = [
        (DriveKind::Nvme, 0, None),
        (DriveKind::Nvme, 1, behind("a,b.img", false, false)),
        (DriveKind::Virtio, 0, behind("c.qcow2", true, true)),
    ]
    .map(|(kind, number, behind)| Drive { kind, number, behind })
    .into();
    let shown = boot.shown(Path::new("qemu"));
    let all = [
        "-drive if=none,id=nvme0,driver=null-co,size=1M ",
        "-device nvme,drive=nvme0,serial=none ",
        // Of QEMU's modes, `unsafe` alone leaves out what a flush asks for, and the others with a cache of this computer's are this one.
        "-drive if=none,id=nvme1,format=raw,cache=writeback,file=a,,b.img ",
        "-device nvme,drive=nvme1,serial=root ",
        "-drive if=none,id=virtio0,format=qcow2,cache=writeback,readonly=on,file=c.qcow2 ",
        // Without these, QEMU stops the whole machine when there is no room for a file.
        "-device virtio-blk-pci,drive=virtio0,serial=root,disable-legacy=on,werror=report,rerror=report ",
    ];
    let places: Vec<_> = all.iter().map(|words| shown.find(words).expect(words)).collect();
    assert!(places.is_sorted(), "numbers are those of PCI addresses: {shown}");
    assert!(!shown.contains("iommu"), "{shown}");
    boot.iommu = true;
    let shown = boot.shown(Path::new("qemu"));
    assert!(shown.contains("dtb-randomness=off,iommu=smmuv3 "), "{shown}");
    let behind = "disable-legacy=on,iommu_platform=on ";
    assert!(shown.contains(&format!("-device virtio-net-pci,netdev=net0,romfile=,{behind}")), "{shown}");
    let disk = "virtio-blk-pci,drive=virtio0,serial=root,disable-legacy=on,werror=report,rerror=report";
    assert!(shown.contains(&format!("-device {disk},iommu_platform=on ")), "{shown}");
    assert!(shown.contains("-device nvme,drive=nvme0,serial=none "), "it has no say: {shown}");
    boot.board = Board::Q35;
    let shown = boot.shown(Path::new("qemu"));
    let iommu = shown.find("-device amd-iommu,intremap=on,pt=off ").unwrap();
    assert!(iommu < shown.find("virtio-net-pci").unwrap(), "before what is behind it: {shown}");
    boot.iommu = false;
    assert!(!boot.shown(Path::new("qemu")).contains("amd-iommu"));
    boot.board = Board::Powernv9;
    let shown = boot.shown(Path::new("qemu"));
    assert!(shown.contains("-device nvme,drive=nvme1,serial=root,bus=port2 "), "{shown}");
    assert!(shown.contains("-device pnv-phb,id=phb3,chip-id=0,index=3 "), "behind the cards: {shown}");
}

#[test]
fn without_hypervisor_mode_a_power_machine_is_a_partition() {
    let mut boot = Boot::new("vmlinux".into(), "initrd".into(), 1 << 30, 2);
    boot.board = Board::Powernv10;
    assert!(boot.shown(Path::new("qemu")).contains("-machine powernv10 \\\n    -smp 2"));
    boot.virtualization = false;
    let shown = boot.shown(Path::new("qemu"));
    assert!(shown.contains("-machine pseries,x-vof=on,ic-mode=xive \\\n    -cpu power10"), "{shown}");
    assert!(!shown.contains("ipmi"), "{shown}");
}

#[test]
fn cpus_of_a_pc_take_turns() {
    let single = |board, cpus, counted, extra: &[&str]| {
        let mut boot = Boot::new("i".into(), "b".into(), 1 << 30, cpus);
        (boot.board, boot.counted) = (board, counted);
        boot.extra = extra.iter().map(OsString::from).collect();
        boot.shown(Path::new("qemu")).matches("-accel tcg,thread=single").count()
    };
    for board in [Board::Q35, Board::Pc, Board::Microvm] {
        assert_eq!((single(board, 2, false, &[]), single(board, 64, false, &[])), (1, 1), "{board:?}");
        assert_eq!(single(board, 1, false, &[]), 0, "there is nobody to race with");
        assert_eq!(single(board, 2, true, &[]), 1, "counted runs say so already");
        assert_eq!(single(board, 2, false, &["-accel", "tcg"]), 0, "somebody wants it otherwise");
    }
    assert_eq!((single(Board::Virt, 4, false, &[]), single(Board::Powernv9, 4, false, &[])), (0, 0));
}

#[test]
fn counted_runs_are_repeatable() {
    let mut boot = Boot::new("i".into(), "b".into(), 1 << 30, 1);
    boot.counted = true;
    let shown = boot.shown(Path::new("qemu"));
    for word in ["shift=0,sleep=off", "thread=single", "dtb-randomness=off", "clock=vm"] {
        assert!(shown.contains(word), "{shown}");
    }
}
