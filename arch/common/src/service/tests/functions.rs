// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services that are PCI functions: BARs and messages.

use super::*;

#[test]
fn messages_and_bars_are_refused_where_nothing_is() {
    let call = |call, arguments| Step::Call(call, arguments);
    let (service, world) = service(&[
        Step::Done(0, 0),
        call(Call::Message, [0xfee0_0000, 0x31, 0]),
        call(Call::Message, [0, 0x31, 0]),
        call(Call::Decode, [4, 0x1000, 0x4000]),
        call(Call::Decode, [1, 0, 0]),
        Step::Done(7, 0),
    ]);
    assert_eq!(access(&service), 7);
    let refused = format!("resume {:?}", Some(abi::REFUSED));
    let done = "resume Some(0)".to_string();
    assert_eq!(heard(&service)[3..], [done.clone(), refused.clone(), done, refused]);
    assert_eq!(
        said(world),
        ["message 0: fee00000 31", "message 0: 0 31", "decode 0: 4 1000 4000", "decode 0: 1 0 0"]
    );
}

#[test]
fn a_bar_is_where_it_was_put_and_nowhere_else() {
    let leak = |_| -> &'static Service<Script> { Box::leak(Box::new(service(&[]).0)) };
    let [first, second] = [leak(1), leak(2)];
    let doorbells = Doorbells { first: 0x3000, size: 0x1000, by: 0 };
    let mut services = Services::none();
    services.memory.push(Served {
        base: 0x900,
        size: 0x100,
        device: 0,
        doorbells: Doorbells::NONE,
        mask: u64::MAX,
        bell: 0,
        service: first,
    });
    services.bars.push(Bar::new(Served::nowhere(5, doorbells, first)));
    services.bars.push(Bar::new(Served::nowhere(5, doorbells, second)));
    let at = |address| services.at_address(address).map(|(device, offset)| (device.device, offset));
    assert_eq!([0, 0x3000, 1 << 52, (1 << 56) - 1].map(at), [None; 4], "a BAR that is not decoded");
    assert!(services.move_bar(first, 5, 0x4000, 0x4000));
    assert_eq!([0x3fff, 0x4000, 0x7fff, 0x8000].map(at), [None, Some((5, 0)), Some((5, 0x3fff)), None]);
    assert!(!services.move_bar(second, 5, 0x6000, 0x4000), "another one is there");
    assert!(!services.move_bar(second, 5, 0, 0x1000), "a register is there");
    assert!(!services.move_bar(second, 6, 0x1_0000, 0x1000), "it has no such device");
    assert!(services.move_bar(second, 5, 0x8000, 0x4000));
    assert!(services.move_bar(first, 5, 0x1_0000, 0x4000), "where it was it is no more");
    assert_eq!([0x4000, 0x8000, 0x1_0000].map(at), [None, Some((5, 0)), Some((5, 0))]);
    assert!(!services.move_bar(first, 5, 0x8000, 0x4000));
    assert_eq!(at(0x1_0000), None, "who cannot move is nowhere");
    assert!(services.move_bar(second, 5, 0, 0));
    assert_eq!((at(0x8000), at(0x910)), (None, Some((0, 0x10))));
    assert!(services.function(0).is_none() && services.function(1).is_none());
}

#[test]
fn a_bar_that_stays_is_found_all_the_time() {
    let service: &'static Service<Script> = Box::leak(Box::new(service(&[]).0));
    let mut services = Services::none();
    services.bars.push(Bar::new(Served::nowhere(5, Doorbells::NONE, service)));
    assert!(services.move_bar(service, 5, 0x4000, 0x1000));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                assert!(services.at_address(0x4010).is_some());
            }
        });
        for _ in 0..200_000 {
            assert!(services.move_bar(service, 5, 0x4000, 0x1000));
        }
        done.store(true, Ordering::Relaxed);
        looks.join().unwrap();
    });
}

/// A CPU of a vCPU of this VM: what of its messages it has taken.
struct Own<'a>(u8, &'a RefCell<Vec<(u64, u64)>>);

impl Meanwhile for Own<'_> {
    fn interrupt(&mut self) {}

    fn wait(&mut self) {
        panic!("nobody else is there");
    }

    fn again(&mut self) {}

    fn message(&mut self, vm: u8, address: u64, data: u64) -> bool {
        let is_own = vm == self.0 && address != 0;
        if is_own {
            self.1.borrow_mut().push((address, data));
        }
        is_own
    }
}

#[test]
fn a_message_for_the_vcpu_on_this_cpu_goes_no_further() {
    let answer = |member, address| Step::Answer(abi::Answer::default().with_message(member, address, 0x31));
    let call = Step::Call(Call::Message, [0xfee0_0000, 0x32, 1]);
    let (service, world) = shared(&[Step::Done(0, 0), Step::Done(0, 0)]);
    service.attach(1, vec![], None).unwrap();
    service.attach(2, vec![], None).unwrap();
    access_of(&service, 1);
    let steps = [answer(1, 0xfee0_0000), answer(2, 0xfee0_0000), answer(1, 0), answer(0, 0xfee0_0000), call];
    service.space.steps.lock().unwrap().extend(steps);
    let taken = RefCell::new(vec![]);
    for _ in steps {
        // SAFETY: the script needs no CPU. Member 1 is of VM 2.
        unsafe { service.access(&READ, &mut Own(2, &taken)) };
    }
    assert_eq!(taken.into_inner(), [(0xfee0_0000, 0x31), (0xfee0_0000, 0x32)]);
    assert_eq!(said(world), ["message 2: fee00000 31", "message 1: 0 31"], "who is not there gets none");
}

#[test]
fn a_device_that_is_no_function_asks_no_cpu_for_a_message() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Call(Call::Message, [0xfee0_0000, 0x31, 0])]);
    for vm in 0..=u8::MAX {
        let taken = RefCell::new(vec![]);
        // SAFETY: the script needs no CPU.
        unsafe { service.access(&READ, &mut Own(vm, &taken)) };
        assert!(taken.into_inner().is_empty());
        service.space.steps.lock().unwrap().push_back(Step::Call(Call::Message, [0xfee0_0000, 0x31, 0]));
    }
    assert_eq!(said(world).len(), 256, "whether it may is for others to say");
}

#[test]
fn an_answer_takes_a_message_along() {
    let answer = |member, count| {
        let answer = abi::Answer { lines: 1, ..abi::Answer::default() };
        Step::Answer(abi::Answer { count, ..answer.with_message(member, 0xfee0_0000, 0x31) })
    };
    let members = [1, 0, abi::MEMBERS, u64::from(u32::MAX)];
    let steps = members.map(|member| answer(member, 0));
    let (service, world) = shared(&[Step::Done(0, 0)]);
    service.attach(1, vec![], None).unwrap();
    access_of(&service, 1);
    service.space.steps.lock().unwrap().extend(steps);
    for _ in members {
        access_of(&service, 1);
    }
    assert_eq!(said(world), ["message 1: fee00000 31", "lines 1 1"], "the others are not there");
    // Characters are no message.
    service.space.steps.lock().unwrap().extend([answer(1, 1), answer(1, 0)]);
    access_of(&service, 1);
    assert!(said(world).is_empty());
    access_of(&service, 1);
    assert_eq!(said(world), ["message 1: fee00000 31"], "each time");
}
