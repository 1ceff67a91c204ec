// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services that reach memory of VMs that is mapped on demand.

use core::slice;

use super::*;

/// A window on such memory; [`Script`] says that it is at its guest address and 1000h.
fn on_demand(guest: u64) -> Window {
    Window { on_demand: true, size: 0x4000, ..window(guest) }
}

/// A service that is left by these steps when it knows of its VM, whose memory at 10000h is mapped on demand.
fn left_by(steps: &[Step]) -> (Service<Script>, &'static World) {
    let (service, world) = service(&[Step::Done(0, 0); 3]);
    service.attach(0, vec![window(0), on_demand(0x1_0000)], None).unwrap();
    service.space.steps.lock().unwrap().extend(steps);
    (service, world)
}

/// What the service hears behind its first events.
fn heard_later(service: &Service<Script>) -> Vec<String> {
    let heard = heard(service);
    let first = heard.iter().position(|what| what == "Read 0");
    heard[first.unwrap()..].to_vec()
}

#[test]
fn what_a_service_misses_is_touched_for_its_vm_and_supplied() {
    let (service, world) = left_by(&[Step::Miss(0x1_3008), Step::Done(5, 0)]);
    assert_eq!(access(&service), 5);
    assert_eq!(said(world), ["touch 0: 12008"]);
    assert_eq!(heard_later(&service), ["Read 0", "excuse", "supply 10000: 2008 at 7e00000", "resume None"]);
    assert_eq!(service.figures().crashes, 0);
}

#[test]
fn who_is_interrupted_while_it_clears_comes_again() {
    let (service, world) = left_by(&[Step::Miss(0x1_1000), Step::Miss(0x1_1000), Step::Done(5, 0)]);
    world.touched.lock().unwrap().push_back(Touch::Again);
    // SAFETY: the script needs no CPU.
    assert_eq!(unsafe { service.access(&READ, &mut Wanted(0)) }.value, 5);
    assert_eq!(said(world), ["touch 0: 10000", "touch 0: 10000"]);
    let heard = heard_later(&service);
    assert_eq!(
        heard,
        ["Read 0", "excuse", "resume None", "excuse", "supply 10000: 0 at 7e00000", "resume None"]
    );
}

#[test]
fn a_service_that_is_killed_meanwhile_dies() {
    let (service, world) = left_by(&[Step::Miss(0x1_1000), Step::Done(0, 0), Step::Done(0, 0)]);
    service.space.steps.lock().unwrap().extend([Step::Done(0, 0), Step::Done(6, 0)]);
    let mut kills = Kills(&service);
    world.touched.lock().unwrap().push_back(Touch::Again);
    // SAFETY: as above.
    assert_eq!(unsafe { service.access(&READ, &mut kills) }.value, 6);
    assert_eq!(said(world)[1], "1: service test was killed, here");

    /// Kills a service that waits.
    struct Kills<'a>(&'a Service<Script>);
    impl Meanwhile for Kills<'_> {
        fn interrupt(&mut self) {}
        fn wait(&mut self) {
            self.0.kill();
        }
        fn again(&mut self) {}
    }
}

#[test]
fn everything_else_is_a_fault() {
    // Below, behind, a window that is mapped from the start, and what the VM has no memory for.
    for (address, touched) in [(0x1_0fff, false), (0x1_5000, false), (0x1000, false), (0x1_1000, true)] {
        let (service, world) = left_by(&[Step::Miss(address)]);
        world.touched.lock().unwrap().push_back(Touch::Foreign);
        access(&service);
        assert_eq!(service.figures().crashes, 1, "{address:x}");
        assert_eq!(said(world)[0].starts_with("touch"), touched, "{address:x}");
    }
}

#[test]
fn a_window_is_its_members() {
    let (service, world) = shared(&[]);
    service.attach(1, vec![on_demand(0x1_0000)], None).unwrap();
    service.attach(2, vec![on_demand(0x8_0000)], None).unwrap();
    access_of(&service, 1);
    service.space.steps.lock().unwrap().extend([Step::Miss(0x8_1000), Step::Miss(0x1_1000)]);
    access_of(&service, 1);
    assert_eq!(said(world), ["touch 2: 80000", "touch 1: 10000"]);
    service.detach(2);
    access_of(&service, 1);
    service.space.steps.lock().unwrap().push_back(Step::Miss(0x8_1000));
    access_of(&service, 1);
    assert_eq!(service.figures().crashes, 1, "who has left has no memory");
}

#[test]
fn blocks_that_are_taken_are_missed_and_nothing_that_has_come_is_lost() {
    let (service, world) = left_by(&[Step::Done(5, 0)]);
    assert_eq!(access(&service), 5);
    heard(&service);
    let done = service.without(1, slice::from_ref(&(0x1_1000..0x1_3000)), || {
        assert_eq!(heard(&service), ["withdraw 10000: 1000..3000"], "nobody reaches them by then");
        assert!(service.gate.is_inside(), "nobody else is");
        assert!(service.gate.post(Pending::doorbell(0)).is_none());
        7
    });
    assert_eq!(done, 7);
    assert_eq!(said(world), ["call 1"], "somebody looks");
    service.space.steps.lock().unwrap().push_back(Step::Done(0, 0));
    // SAFETY: as above.
    assert!(unsafe { service.look(&mut Wanted(0)) });
    assert_eq!(heard(&service), ["Doorbell 1"]);
    for guest in [0..0x1_0000, 0x1_4000..0x2_0000] {
        service.without(1, &[guest], || ());
        assert_eq!(heard(&service), [""; 0], "what is mapped from the start, and what is behind");
    }
    service.without(1 << 9, slice::from_ref(&(0..0x10_0000)), || ());
    service.without(1, &[0xf000..0x1_2000, 0x1_3000..0x1_8000], || ());
    assert_eq!(heard(&service), ["withdraw 10000: 0..2000", "withdraw 10000: 3000..4000"]);
}

/// What a service without memory is left for: nothing, on a CPU that need not look.
fn starve(service: &Service<Script>, world: &World, pending: Pending) {
    world.touched.lock().unwrap().push_back(Touch::Dry);
    let mut cpu = Wanted(0);
    // SAFETY: the script needs no CPU.
    unsafe { service.post(pending, &mut cpu) };
    assert_eq!(cpu.0, 0, "not at once");
    assert!(!service.gate.is_inside(), "who gives memory back may have to enter");
}

#[test]
fn a_service_that_finds_the_pool_empty_leaves_and_comes_again() {
    for (pending, again) in [
        (Pending::doorbell(3), "Doorbell 8"),
        (Pending::ALARM, "Alarm 9"),
        (Pending::INTERRUPT, "Interrupt 9"),
    ] {
        let (service, world) = left_by(&[Step::Done(5, 0), Step::Miss(0x1_1000)]);
        access(&service);
        heard(&service);
        starve(&service, world, pending);
        assert_eq!(said(world), ["touch 0: 10000", "alarm 1000009"]);
        assert_eq!(service.figures().crashes, 0, "nobody is to blame");
        heard(&service);
        // The alarm, which may be the program's own by then, or any other event.
        let mut cpu = Wanted(0);
        // SAFETY: as above.
        unsafe { service.post(Pending::doorbell(0), &mut cpu) };
        assert_eq!(cpu.0, 1, "it looks behind that");
        // SAFETY: as above.
        assert!(unsafe { service.look(&mut cpu) });
        let heard = heard(&service);
        assert_eq!(heard[0], "begin true", "what is kept stays");
        assert!(heard.ends_with(&["Doorbell 1".to_string(), again.to_string()]), "{heard:?}");
        // SAFETY: as above.
        assert!(!unsafe { service.look(&mut cpu) }, "once");
    }
}

#[test]
fn what_was_typed_for_a_service_without_memory_waits() {
    let (service, world) = left_by(&[Step::Done(5, 0), Step::Miss(0x1_1000)]);
    access(&service);
    world.size.store(0x50, Ordering::Relaxed);
    world.is_resized.store(true, Ordering::Relaxed);
    starve(&service, world, Pending::INPUT);
    said(world);
    service.space.steps.lock().unwrap().extend([Step::Done(0, 0); 4]);
    heard(&service);
    // SAFETY: as above.
    unsafe { service.post(Pending::ALARM, &mut Wanted(0)) };
    // SAFETY: as above.
    assert!(unsafe { service.look(&mut Wanted(0)) });
    assert_eq!(heard(&service).last().unwrap(), "Input 0", "the size, of which nobody else knows");
    assert!(service.unheard.lock().is_none());
    // A new life has a terminal, too, but not this event.
    world.is_resized.store(true, Ordering::Relaxed);
    service.space.steps.lock().unwrap().extend([Step::Miss(0x1_1000)]);
    starve(&service, world, Pending::INPUT);
    service.reset();
    assert!(service.unheard.lock().is_none() && !service.starved.has(Pending::INPUT));
}

#[test]
fn who_waits_for_an_answer_is_not_kept_waiting_for_memory() {
    let (service, world) = left_by(&[Step::Miss(0x1_1000)]);
    service.space.steps.lock().unwrap().extend([
        Step::Done(0, 0),
        Step::Done(0, 0),
        Step::Done(0, 0),
        Step::Miss(0x1_1000),
    ]);
    world.touched.lock().unwrap().extend([Touch::Dry; 2]);
    assert_eq!(access(&service), u64::MAX, "as an absent device");
    assert_eq!((service.figures().crashes, service.begins.load(Ordering::Relaxed)), (0, EMPTY));
}

#[test]
fn a_device_whose_rings_are_gone_begins_as_new() {
    let (service, world) = left_by(&[Step::Done(5, 0)]);
    access(&service);
    // SAFETY: as above.
    unsafe { service.post(Pending::KILL, &mut Wanted(0)) };
    // Two pieces of memory; then what it reads when it is to go on with what is kept.
    service.space.steps.lock().unwrap().extend([Step::Done(0, 0), Step::Done(0, 0), Step::Miss(0x1_1000)]);
    world.touched.lock().unwrap().push_back(Touch::Dry);
    heard(&service);
    assert_eq!(access(&service), 0);
    let heard = heard(&service);
    let begins: Vec<&String> = heard.iter().filter(|what| what.starts_with("begin")).collect();
    assert_eq!(begins, ["begin true", "begin false"], "{heard:?}");
}

#[test]
fn a_service_gives_up_whole_blocks_of_its_vm_alone() {
    const B: u64 = abi::BLOCK;
    let (service, world) = service(&[Step::Done(0, 0); 4]);
    let later = Window { size: 4 * B, ..on_demand(8 * B) };
    service.attach(0, vec![window(0), Window { size: 4 * B, ..window(4 * B) }, later], None).unwrap();
    access(&service);
    let result = |first, second| {
        heard(&service);
        let call = Step::Call(Call::Release, [first, second, 0]);
        service.space.steps.lock().unwrap().extend([call, Step::Done(0, 0)]);
        access(&service);
        heard(&service)[1].clone()
    };
    let refused = format!("resume Some({})", abi::REFUSED);
    for (address, length) in [
        (8 * B + 1, B),
        (8 * B, B + 1),
        (7 * B, B),
        (8 * B, 5 * B),
        (12 * B, B),
        (4 * B, B),
        (8 * B, B.wrapping_neg()),
        (B.wrapping_neg(), B),
    ] {
        assert_eq!(result(address, length), refused, "{address:x} {length:x}");
    }
    assert_eq!(said(world), [""; 0]);
    for (address, length) in [(8 * B, 4 * B), (11 * B, B), (0, 0)] {
        assert_eq!(result(address, length), "resume Some(3)", "{address:x} {length:x}");
    }
    assert_eq!(said(world), ["give up 1000000..1800000", "give up 1600000..1800000", "give up 0..0"]);
    let keep = [Step::Call(Call::Keep, [0; 3]), Step::Done(0, 0)];
    service.space.steps.lock().unwrap().extend(keep);
    access(&service);
    assert_eq!(said(world), ["keep"]);
    let (service, world) = shared(&[]);
    service.attach(1, vec![Window { size: 4 * B, ..on_demand(8 * B) }], None).unwrap();
    access_of(&service, 1);
    service.space.steps.lock().unwrap().push_back(Step::Call(Call::Release, [8 * B, B, 0]));
    service.space.steps.lock().unwrap().extend(keep);
    access_of(&service, 1);
    let is_of_blocks = |what: &String| what.starts_with("give") || what == "keep";
    assert!(!said(world).iter().any(is_of_blocks), "whose they would be nobody says");
}

/// A shared service of two members whose memory is mapped on demand, which has handled something.
fn shared_pool() -> (Service<Script>, &'static World) {
    let (service, world) = shared(&[]);
    (0..2).for_each(|member| service.attach(member, vec![on_demand(0x1_0000 << member)], None).unwrap());
    access_of(&service, 0);
    heard(&service);
    events(&service);
    (service, world)
}

/// It is rung by a member, and touches memory of the second one that is not there.
fn ring_dry(service: &Service<Script>, world: &World, queue: u64) {
    service.space.steps.lock().unwrap().push_back(Step::Miss(0x2_1000));
    world.touched.lock().unwrap().push_back(Touch::Dry);
    // SAFETY: as above.
    unsafe { service.post(Pending::doorbell(queue), &mut Wanted(0)) };
}

/// Which members it is told of, and what is kept of them.
fn joined(service: &Service<Script>) -> Vec<(u64, u64)> {
    let joined = events(service).into_iter().filter(|(kind, _)| *kind == Kind::Attach);
    joined.map(|(_, [kept, _, member, ..])| (member, kept)).collect()
}

#[test]
fn a_shared_service_does_without_a_member_that_the_pool_has_no_memory_for() {
    let (service, world) = shared_pool();
    ring_dry(&service, world, 0);
    assert_eq!(said(world), ["touch 1: 20000", "alarm 20000009"], "somebody looks for it");
    assert_eq!(joined(&service), [(0, 1)], "the others are there at once");
    assert_eq!(heard(&service).last().unwrap(), "Doorbell 1", "what they did is done");
    assert_eq!(service.figures().crashes, 0);
    // The program's own alarm is not the last word, and one that comes at once is soon enough.
    let asks = [Step::Call(Call::Alarm, [u64::MAX, 0, 0]), Step::Done(0, 0), Step::Done(0, abi::AGAIN)];
    service.space.steps.lock().unwrap().extend(asks);
    for said_last in ["alarm 20000009", "alarm 0"] {
        // SAFETY: as above.
        unsafe { service.post(Pending::doorbell(1), &mut Wanted(0)) };
        assert_eq!((joined(&service), said(world)), (vec![], vec![said_last.to_string()]));
    }
    NOW.set(20_000_009);
    // SAFETY: as above.
    unsafe { service.post(Pending::doorbell(0), &mut Wanted(0)) };
    assert_eq!(joined(&service), [(1, 1)], "with what is kept, and nobody else begins anew");
    assert_eq!(service.begins.load(Ordering::Relaxed), RUNS);
    assert_eq!(said(world), [""; 0], "all are there");
    ring_dry(&service, world, 0);
    assert_eq!(joined(&service), [(0, 1)]);
    NOW.set(300_000_000);
    access_of(&service, 0);
    assert_eq!(joined(&service), [(1, 1)], "it had its time");
}

#[test]
fn who_reads_a_register_waits_outside_until_it_is_back() {
    let (service, world) = shared_pool();
    ring_dry(&service, world, 4);
    assert_eq!(joined(&service), [(0, 1)]);
    let waits = Cell::new(0);
    // Somebody else is inside when it is time.
    let event = Event::new(Kind::Read, [abi::member_device(1, 1), 0, 1, 0, 0]);
    // SAFETY: as above.
    unsafe { service.access(&event, &mut Waits(&service, &waits)) };
    assert_eq!((waits.get(), NOW.get()), (5, 20_000_009));
    assert_eq!((joined(&service), service.gate.is_inside()), (vec![(1, 1)], false));
    ring_dry(&service, world, 0);
    access_of(&service, 0);
    assert_eq!(joined(&service), [(0, 1)], "others do not wait");
    service.detach(1);
    access_of(&service, 0);
    assert_eq!(service.begins.load(Ordering::Relaxed), RUNS, "nobody waits for who has left");
    service.attach(1, vec![on_demand(0x2_0000)], None).unwrap();
    access_of(&service, 1);
    assert_eq!(joined(&service), [(1, 0)], "another life was never absent");

    /// Time passes while it waits, and others go in and out.
    struct Waits<'a>(&'a Service<Script>, &'a Cell<u32>);
    impl Meanwhile for Waits<'_> {
        fn interrupt(&mut self) {}
        fn wait(&mut self) {
            self.1.set(self.1.get() + 1);
            if NOW.get() < 20_000_009 {
                NOW.set(NOW.get() + 5_000_000);
                assert!(self.0.gate.enter(), "nobody is kept out meanwhile");
            }
            if NOW.get() < 20_000_009 || self.1.get() > 4 {
                assert_eq!(self.0.gate.leave(), None);
            }
        }
        fn again(&mut self) {}
    }
}

#[test]
fn an_access_that_finds_no_memory_again_and_again_ends() {
    let (service, world) = shared_pool();
    for _ in 0..4 {
        service.space.steps.lock().unwrap().extend([Step::Miss(0x2_1000); 1]);
        world.touched.lock().unwrap().push_back(Touch::Dry);
        // Both members are told of in between.
        service.space.steps.lock().unwrap().extend([Step::Done(0, 0); 4]);
    }
    assert_eq!(access_of(&service, 1), u64::MAX);
}

#[test]
fn events_do_not_put_the_alarm_off_while_a_member_is_absent() {
    let (service, world) = shared_pool();
    ring_dry(&service, world, 0);
    said(world);
    // Sooner is the program's to say.
    let asks = [Step::Call(Call::Alarm, [500, 0, 0]), Step::Done(0, 0)];
    service.space.steps.lock().unwrap().extend(asks);
    for expected in [vec!["alarm 500".to_string()], vec![]] {
        NOW.set(NOW.get() + 100);
        // SAFETY: as above.
        unsafe { service.post(Pending::doorbell(0), &mut Wanted(0)) };
        assert_eq!(said(world), expected);
    }
    // It goes off: the next one is set before the program hears of it, which may want it sooner.
    service.space.steps.lock().unwrap().extend(asks);
    // SAFETY: as above.
    unsafe { service.post(Pending::ALARM, &mut Wanted(0)) };
    assert_eq!(said(world), ["alarm 20000009", "alarm 500"]);
    NOW.set(20_000_009);
    service.space.steps.lock().unwrap().extend([Step::Done(0, 0), Step::Done(0, 0)]);
    service.space.steps.lock().unwrap().extend([Step::Call(Call::Alarm, [u64::MAX, 0, 0]), Step::Done(0, 0)]);
    // SAFETY: as above.
    unsafe { service.post(Pending::ALARM, &mut Wanted(0)) };
    assert_eq!(said(world), [format!("alarm {}", u64::MAX)], "all are there");
}

#[test]
fn a_program_that_reaches_for_memory_of_who_is_absent_is_to_blame() {
    let (service, world) = shared_pool();
    for _ in 0..9 {
        service.space.steps.lock().unwrap().push_back(Step::Miss(0x2_1000));
        service.space.steps.lock().unwrap().extend([Step::Done(0, 0); 2]);
    }
    world.touched.lock().unwrap().extend([Touch::Dry; 9]);
    // SAFETY: as above.
    unsafe { service.post(Pending::doorbell(0), &mut Wanted(0)) };
    assert_eq!(service.figures().crashes, 2, "tried once more, and no more often");
    assert!(!service.gate.is_inside());
    assert_eq!(said(world).iter().filter(|what| what.starts_with("touch")).count(), 1);
}

/// A shared service of three members whose memory is mapped on demand, which has handled something.
fn three_of_a_pool() -> (Service<Script>, &'static World) {
    let (service, world) = shared_pool();
    service.attach(2, vec![on_demand(0x4_0000)], None).unwrap();
    access_of(&service, 0);
    events(&service);
    (service, world)
}

#[test]
fn nobody_comes_back_while_an_event_is_tried_again() {
    let (service, world) = three_of_a_pool();
    let done = Step::Done(0, 0);
    service.space.steps.lock().unwrap().extend([
        Step::Miss(0x2_1000),
        Step::Interrupt,
        done,
        done,
        done,
        done,
    ]);
    service.space.steps.lock().unwrap().push_back(Step::Miss(0x4_1000));
    world.touched.lock().unwrap().extend([Touch::Dry; 2]);
    // SAFETY: as above.
    unsafe { service.post(Pending::ALARM, &mut Slow) };
    assert_eq!(joined(&service), [(0, 1), (2, 1), (0, 1)], "one fewer each time, so it ends");

    /// To begin anew takes long.
    struct Slow;
    impl Meanwhile for Slow {
        fn interrupt(&mut self) {
            NOW.set(NOW.get() + 30_000_000);
        }
        fn wait(&mut self) {}
        fn again(&mut self) {}
    }
}

#[test]
fn who_reads_a_register_does_not_pay_for_the_memory_of_others() {
    let (service, world) = three_of_a_pool();
    service.kill();
    // SAFETY: as above.
    unsafe { service.post(Pending::KILL, &mut Wanted(0)) };
    // Each of the others has given back what its device goes on with.
    let done = Step::Done(0, 0);
    for member in [1, 2] {
        let missed = Step::Miss(0x1_1000 + 0x1_0000 * (2 * member - 1));
        service.space.steps.lock().unwrap().extend([done, done, done, missed]);
    }
    service.space.steps.lock().unwrap().extend([done, done, Step::Done(5, 0)]);
    world.touched.lock().unwrap().extend([Touch::Dry; 2]);
    assert_eq!(access_of(&service, 0), 5);
    assert_eq!(joined(&service), [(0, 1), (1, 1), (0, 1), (2, 1), (0, 1)]);
    NOW.set(40_000_000);
    access_of(&service, 0);
    assert_eq!(joined(&service), [(1, 0), (2, 0)], "they begin as new devices");
}

#[test]
fn who_is_told_of_is_not_blamed_for_the_memory_of_another() {
    let (service, world) = shared_pool();
    // SAFETY: as above.
    unsafe { service.post(Pending::KILL, &mut Wanted(0)) };
    let done = Step::Done(0, 0);
    service.space.steps.lock().unwrap().extend([done, done, done, Step::Miss(0x1_1000 + 0x1000)]);
    world.touched.lock().unwrap().push_back(Touch::Dry);
    access_of(&service, 1);
    assert_eq!(joined(&service), [(0, 1), (1, 1), (1, 1)], "the first is absent, the second goes on");
}

#[test]
fn two_events_without_memory_do_not_have_each_other_come_again() {
    let (service, world) = left_by(&[Step::Done(5, 0)]);
    access(&service);
    let (done, miss) = (Step::Done(0, 0), Step::Miss(0x1_1000));
    let mut steps = vec![miss];
    // Two pieces of memory, and the VM, before each further event.
    (0..9).for_each(|_| steps.extend([done, done, done, miss]));
    service.space.steps.lock().unwrap().extend(steps);
    world.touched.lock().unwrap().extend([Touch::Dry; 10]);
    let mut cpu = Wanted(0);
    let taken = Pending::doorbell(0);
    assert!(service.gate.enter());
    assert!(service.gate.post(Pending::INTERRUPT).is_none());
    // SAFETY: as above.
    unsafe { service.post(taken, &mut cpu) };
    assert_eq!(service.gate.leave().map(|pending| service.wanted.add(pending)), Some(()));
    assert_eq!(service.gate.leave(), None);
    for _ in 0..4 {
        // SAFETY: as above.
        unsafe { service.look(&mut cpu) };
    }
    let touches = said(world).iter().filter(|what| what.starts_with("touch")).count();
    assert_eq!((touches, cpu.0), (2, 0), "once each, until it is time");
    service.space.steps.lock().unwrap().clear();
    world.touched.lock().unwrap().clear();
    heard(&service);
    // SAFETY: as above.
    unsafe { service.post(Pending::ALARM, &mut cpu) };
    look(&service);
    assert_eq!(heard(&service)[4..], ["Alarm 9", "Doorbell 1", "Interrupt 9"]);
}

#[test]
fn an_event_with_crashes_leaves_what_waits_for_memory() {
    // It is given up, or answered in the second life.
    for (last, value) in [(Step::Fault, u64::MAX), (Step::Done(5, 0), 5)] {
        let (service, world) = left_by(&[Step::Done(5, 0), Step::Miss(0x1_1000)]);
        access(&service);
        starve(&service, world, Pending::doorbell(3));
        let first = [Step::Done(0, 0); 3];
        for step in [Step::Fault, last] {
            service.space.steps.lock().unwrap().extend(first);
            service.space.steps.lock().unwrap().push_back(step);
        }
        assert_eq!(access(&service), value);
        assert_eq!(heard(&service).last().unwrap(), "Doorbell 8");
    }
}

#[test]
fn a_card_interrupts_again_while_a_member_is_absent() {
    let (service, world) = driver(&[]);
    service.attach(1, vec![on_demand(0x2_0000)], None).unwrap();
    access_of(&service, 0);
    ring_dry(&service, world, 0);
    said(world);
    // SAFETY: as above.
    unsafe { service.post(Pending::INTERRUPT, &mut Wanted(0)) };
    assert_eq!((said(world), service.begins.load(Ordering::Relaxed)), (vec!["unmask".to_string()], CHANGED));
}

#[test]
fn who_finds_the_pool_empty_again_and_again_is_absent_for_longer_each_time() {
    let (service, world) = shared_pool();
    let mut until = NOW.get();
    for wait in [20, 40, 80, 160, 320, 640, 1000, 1000] {
        ring_dry(&service, world, 0);
        until += wait * 1_000_000;
        assert_eq!(said(world).last().unwrap(), &format!("alarm {until}"));
        NOW.set(until);
        access_of(&service, 0);
    }
    // The pool has a block for it.
    service.space.steps.lock().unwrap().push_back(Step::Miss(0x2_1000));
    access_of(&service, 1);
    ring_dry(&service, world, 0);
    assert_eq!(said(world).last().unwrap(), &format!("alarm {}", until + 20_000_000));
}

#[test]
fn who_waits_for_memory_that_the_pool_has_comes_back_for_what_it_asks() {
    let (service, world) = shared_pool();
    let starve_long = || {
        // The second wait is longer than an access waits.
        ring_dry(&service, world, 0);
        NOW.set(NOW.get() + 20_000_000);
        access_of(&service, 0);
        ring_dry(&service, world, 0);
        events(&service);
    };
    starve_long();
    assert_eq!(access_of(&service, 1), u64::MAX, "the pool is empty");
    world.has_memory.store(true, Ordering::Relaxed);
    NOW.set(NOW.get() + 19_999_999);
    // SAFETY: the script needs no CPU.
    unsafe { service.post(Pending::doorbell(4), &mut Wanted(0)) };
    assert_eq!(joined(&service), [], "others may take it first, again and again");
    NOW.set(NOW.get() + 1);
    access_of(&service, 0);
    assert_eq!(joined(&service), [], "it has asked for nothing");
    assert_eq!(access_of(&service, 1), 0);
    assert_eq!(joined(&service), [(1, 1)], "its device is there");
    world.has_memory.store(false, Ordering::Relaxed);
    NOW.set(NOW.get() + 2_000_000_000);
    starve_long();
    world.has_memory.store(true, Ordering::Relaxed);
    NOW.set(NOW.get() + 20_000_000);
    // SAFETY: as above.
    unsafe { service.post(Pending::doorbell(4), &mut Wanted(0)) };
    assert_eq!(joined(&service), [(1, 1)], "and for what it has rung");
    world.has_memory.store(false, Ordering::Relaxed);
}

#[test]
fn memory_does_not_bring_back_who_crashes_the_service() {
    let (service, world) = shared_pool();
    world.has_memory.store(true, Ordering::Relaxed);
    for _ in 0..5 {
        service.space.steps.lock().unwrap().push_back(Step::Fault);
        // SAFETY: as above.
        unsafe { service.post(Pending::doorbell(4), &mut Wanted(0)) };
        access_of(&service, 0);
    }
    events(&service);
    // The fifth was shut out, and rings in vain from then on.
    assert_eq!(service.figures().crashes, 5);
    // SAFETY: as above.
    unsafe { service.post(Pending::doorbell(4), &mut Wanted(0)) };
    assert_eq!(joined(&service), []);
    service.space.steps.lock().unwrap().clear();
}
