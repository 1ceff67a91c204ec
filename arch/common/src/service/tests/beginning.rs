// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program is told before its first event: memory, disk, image.

use super::*;

#[test]
fn memory_comes_before_all_else_in_each_beginning() {
    let (service, _) = service(&[Step::Done(0, 0), Step::Done(0, 0), Step::Done(0, 0), Step::Fault]);
    let window = |guest| Window { guest, size: 0x1000, ..Window::default() };
    service.attach(0, [window(0x8000), window(0xa000)].to_vec(), None).unwrap();
    access(&service);
    let begun = ["Memory 0", "Memory 1"];
    let all = heard(&service);
    assert_eq!(all[..2], ["attach 0: 2", "begin false"]);
    assert_eq!(all[2..4], begun);
    assert_eq!(all[4..6], ["Attach 0", "Read 0"]);
    assert_eq!(all[6..], ["begin true", begun[0], begun[1], "Attach 1", "Read 0"]);
    service.kill();
    service.detach(0);
    service.reset();
    access(&service);
    assert_eq!(
        heard(&service),
        ["detach 0", "begin false", "Attach 0", "Read 0"],
        "a kill is gone with its life"
    );
}

#[test]
fn a_disk_comes_between_memory_and_the_beginning() {
    let (service, _) = service(&[]);
    let ram = Window { guest: 0x8000, size: 0x1000, ..Window::default() };
    let window = Window { guest: 0xf_0000, size: 0x2000, read_only: true, ..Window::default() };
    let storage = Storage { window, size: 0x1200, name: [1, 2], over: None };
    service.attach(0, [ram].to_vec(), Some(storage)).unwrap();
    access(&service);
    assert_eq!(
        heard(&service),
        [
            "attach 0: 2",
            "begin false",
            "Memory 0",
            &format!("Memory {}", abi::DISK | abi::READ_ONLY),
            "Attach 0",
            "Read 0"
        ]
    );
    let events = core::mem::take(&mut *service.space.events.lock().unwrap());
    assert_eq!(events[1].0, [Kind::Memory as u64, abi::DISK | abi::READ_ONLY, 0x1200, 0xf_1000, 1, 2]);
    assert_eq!(events[2].0, [Kind::Attach as u64, 0, 0x5000, 0, 0, 0], "where its BARs are placed");
    service.detach(0);
    service.reset();
    access(&service);
    assert_eq!(
        heard(&service),
        ["detach 0", "begin false", "Attach 0", "Read 0"],
        "it is gone with its life"
    );
}

/// Behind the memory that is written comes the image that it is over, if there is one.
#[test]
fn what_is_written_over_an_image_comes_with_it() {
    let window = Window { guest: 0xf_0000, size: 0x2000, ..Window::default() };
    let image = Window { guest: 0xf_8000, size: 0x4000, read_only: true, ..Window::default() };
    for (image, place) in [(Some(image), 0xf_9000), (None, 0)] {
        let (service, _) = service(&[]);
        let ram = Window { guest: 0x8000, size: 0x1000, ..Window::default() };
        let over = Some(Over { window: image, length: 0x3200, disk: 0x5000, room: 0x1000 });
        let storage = Storage { window, size: 0x1018, name: [1, 2], over };
        service.attach(0, [ram].to_vec(), Some(storage)).unwrap();
        access(&service);
        assert_eq!(heard(&service)[0], format!("attach 0: {}", 2 + usize::from(image.is_some())));
        let events = core::mem::take(&mut *service.space.events.lock().unwrap());
        assert_eq!(events[0].0[1..4], [0, 0x8000, 0x1000], "one piece of the VM's");
        let memory = Kind::Memory as u64;
        assert_eq!(events[1].0, [memory, abi::DISK, 0x1018, 0xf_1000, 1, 2]);
        assert_eq!(events[2].0, [memory, abi::DISK | abi::IMAGE, 0x3200, place, 0x5000, 0x1000]);
        assert_eq!(events[3].0[0], Kind::Attach as u64);
    }
}
