// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What one VM and its service do: events, calls, crashes, kills, interrupts, doorbells.

use super::*;

#[test]
fn the_first_event_is_attach() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Done(5, 0), Step::Done(6, 0)]);
    assert_eq!((access(&service), access(&service)), (5, 6));
    assert_eq!(heard(&service), ["begin false", "Attach 0", "Read 0", "Read 0"]);
    service.reset();
    access(&service);
    assert_eq!(heard(&service), ["begin false", "Attach 0", "Read 0"], "nothing is kept for the next life");
    assert!(said(world).is_empty());
}

#[test]
fn calls_are_served_and_their_results_come_back() {
    let word = u64::from_le_bytes(*b"hello\0\0\0");
    let calls = [
        Step::Done(0, 0),
        Step::Call(Call::Print, [5, word, 0]),
        Step::Call(Call::Alarm, [30, 0, 0]),
        Step::Call(Call::Print, [17, word, 0]),
        Step::Call(Call::Time, [30, 0, 0]),
        Step::Call(Call::Print, [2, word, 0]),
        Step::Call(Call::Print, [0, 0, 0]),
        Step::Done(1, 0),
    ];
    let (service, world) = service(&calls);
    assert_eq!(access(&service), 1);
    assert_eq!(said(world), ["print hello", "alarm 30", "print he", "print "]);
    // So many were printed in all, which one that prints nothing is told, too.
    let results = [5, 7, u64::MAX, 9, 7, 7].map(|result| format!("resume Some({result})"));
    assert_eq!(heard(&service)[3..], results);
}

#[test]
fn bytes_go_to_ports_that_are_there() {
    let word = u64::from_le_bytes(*b"hello\0\0\0");
    let calls = [
        Step::Done(0, 0),
        Step::Call(Call::Send, [abi::port_count(1, 5), word, 0]),
        Step::Call(Call::Send, [abi::port_count(2, 5), word, 0]),
        Step::Call(Call::Send, [abi::port_count(1, 17), word, 0]),
        Step::Call(Call::PortName, [1, 3, 0]),
        Step::Call(Call::PortName, [2, 3, 0]),
        Step::Done(1, 0),
    ];
    let (service, world) = service(&calls);
    assert_eq!(access(&service), 1);
    assert_eq!(said(world), ["send 1: hello", "send 2: hello"]);
    let results = [5, u64::MAX, u64::MAX, 3, u64::MAX].map(|result| format!("resume Some({result})"));
    assert_eq!(heard(&service)[3..], results);
    let (shared, world) = shared(&after(3, calls[1]));
    shared.attach(0, vec![], None).unwrap();
    access_of(&shared, 0);
    assert!(said(world).iter().all(|what| !what.starts_with("send")), "a port is of one VM");
}

#[test]
fn random_numbers_come_from_outside_and_are_refused_if_there_are_none() {
    let random = Step::Call(Call::Random, [0; 3]);
    let (service, world) = service(&[Step::Done(0, 0), random, random, random, Step::Done(1, 0)]);
    *world.random.lock().unwrap() = vec![6, 5];
    assert_eq!(access(&service), 1);
    assert_eq!(
        heard(&service)[3..],
        ["resume Some(5)", "resume Some(6)", "resume Some(18446744073709551615)"]
    );
}

#[test]
fn lines_take_effect_when_they_change() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Done(0, 1), Step::Done(0, 1), Step::Done(0, 2)]);
    (0..3).for_each(|_| {
        access(&service);
    });
    assert_eq!(said(world), ["lines 1 1", "lines 3 2"]);
}

#[test]
fn a_crash_costs_the_guest_nothing_but_time() {
    let (service, world) = service(&[Step::Done(0, 1), Step::Fault, Step::Done(0, 0), Step::Done(4, 2)]);
    assert_eq!(access(&service), 4);
    assert_eq!(heard(&service), ["begin false", "Attach 0", "Read 0", "begin true", "Attach 1", "Read 0"]);
    let crash = "1: service test did what it must not do, here";
    assert_eq!(
        said(world),
        ["lines 1 1", crash, "lines 1 0", "lines 2 2"],
        "what it answers then takes effect"
    );
    assert_eq!(service.figures().crashes, 1);
}

#[test]
fn who_crashes_twice_on_an_event_is_an_absent_device_and_keeps_nothing() {
    let (service, world) =
        service(&[Step::Done(0, 0), Step::Fault, Step::Done(0, 0), Step::Call(Call::Panic, [0; 3])]);
    assert_eq!(access(&service), u64::MAX);
    assert_eq!(said(world)[1], "2: service test gave up, here");
    heard(&service);
    access(&service);
    assert_eq!(heard(&service)[..2], ["begin false", "Attach 0"]);
}

#[test]
fn who_crashes_on_what_it_has_kept_loses_it() {
    let (service, _) = service(&[Step::Done(0, 0), Step::Fault, Step::Fault]);
    assert_eq!(access(&service), u64::MAX);
    heard(&service);
    access(&service);
    assert_eq!(heard(&service)[..2], ["begin false", "Attach 0"]);
}

#[test]
fn interrupts_are_taken_and_the_service_goes_on() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Interrupt, Step::Interrupt, Step::Done(3, 0)]);
    assert_eq!(access_and(&service, &|| {}), (3, 2));
    assert_eq!(heard(&service)[3..], ["resume None", "resume None"]);
    assert!(said(world).is_empty());
}

#[test]
fn who_is_late_has_crashed() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Interrupt, Step::Done(0, 0), Step::Done(8, 0)]);
    service.space.late.store(true, Ordering::Relaxed);
    assert_eq!(access(&service), 8);
    assert_eq!(said(world), ["1: service test took longer than it may, here"]);
}

#[test]
fn a_kill_is_carried_out_once_inside_and_outside() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Interrupt, Step::Done(0, 0), Step::Done(8, 0)]);
    assert_eq!(access_and(&service, &|| service.kill()), (8, 1));
    assert_eq!(said(world), ["1: service test was killed, here"]);
    service.kill();
    access(&service);
    access(&service);
    assert_eq!(service.figures().crashes, 2, "nobody was inside: whoever came next has seen to it, once");
}

#[test]
fn nothing_that_waits_is_left_for_the_next_life() {
    let (service, world) = service(&[]);
    access(&service);
    world.typed.lock().unwrap().extend(b"old");
    service.want(Pending::INPUT);
    service.want(Pending::ALARM);
    service.kill();
    service.reset();
    heard(&service);
    access(&service);
    let interrupts = RefCell::new(0);
    // SAFETY: the script needs no CPU.
    unsafe { service.look(&mut Kept(&interrupts, &|| {})) };
    assert_eq!(heard(&service), ["begin false", "Attach 0", "Read 0"]);
    assert_eq!((service.figures().crashes, said(world)), (0, vec![]), "killed was the one of before");
}

#[test]
fn kills_are_no_failures_of_the_service() {
    let steps = [
        Step::Done(0, 0),
        Step::Interrupt,
        Step::Interrupt,
        Step::Interrupt,
        Step::Done(0, 0),
        Step::Done(8, 0),
    ];
    let (service, _) = service(&steps);
    let kills = RefCell::new(3);
    let kill = || {
        *kills.borrow_mut() -= 1;
        service.kill();
    };
    assert_eq!(access_and(&service, &kill), (8, 3), "killed in its event, and twice when it begins");
    assert_eq!((kills.into_inner(), service.figures().crashes), (0, 3));
    let begun: Vec<String> = heard(&service).into_iter().filter(|what| what.starts_with("begin")).collect();
    assert_eq!(begun, ["begin false", "begin true", "begin true", "begin true"], "what is kept stays");
}

#[test]
fn typing_waits_until_there_is_room() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Done(8, 0), Step::Done(1, 0), Step::Done(0, 0)]);
    world.typed.lock().unwrap().extend(b"0123456789abcdef");
    let interrupts = RefCell::new(0);
    // SAFETY: the script needs no CPU.
    unsafe { service.post(Pending::INPUT, &mut Kept(&interrupts, &|| {})) };
    look(&service);
    assert_eq!(*world.typed.lock().unwrap(), b"9abcdef", "eight were taken, then one, then none");
    service.space.steps.lock().unwrap().extend([Step::Done(0, abi::ROOM), Step::Done(7, 0)]);
    access(&service);
    look(&service);
    assert!(world.typed.lock().unwrap().is_empty());
    assert!(said(world).is_empty(), "room is no line");
}

#[test]
fn typing_says_how_much_came_before_and_how_large_the_terminal_is() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Done(8, 0), Step::Done(0, 0), Step::Done(2, 0)]);
    world.typed.lock().unwrap().extend(b"0123456789");
    let interrupts = RefCell::new(0);
    let look_for_input = || {
        // SAFETY: the script needs no CPU.
        unsafe { service.post(Pending::INPUT, &mut Kept(&interrupts, &|| {})) };
        look(&service);
    };
    look_for_input();
    assert_eq!(heard(&service)[1..], ["Attach 0", "Input 0", "Input 0"]);
    world.size.store(abi::terminal_size(80, 25), Ordering::Relaxed);
    world.is_resized.store(true, Ordering::Relaxed);
    look_for_input();
    assert_eq!(heard(&service), ["Input 0"], "it takes what it had refused");
    world.is_resized.store(true, Ordering::Relaxed);
    service.space.steps.lock().unwrap().extend([Step::Done(0, 0)]);
    look_for_input();
    assert_eq!(heard(&service), ["Input 0"], "a size comes without characters, too");
    look_for_input();
    assert!(heard(&service).is_empty(), "and once");
}

#[test]
fn room_without_taking_anything_is_none() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Done(0, abi::ROOM), Step::Fault]);
    world.typed.lock().unwrap().extend(b"abc");
    let interrupts = RefCell::new(0);
    // SAFETY: the script needs no CPU.
    unsafe { service.post(Pending::INPUT, &mut Kept(&interrupts, &|| {})) };
    assert_eq!(heard(&service), ["begin false", "Attach 0", "Input 0"], "it is not asked again and again");
    assert_eq!(*world.typed.lock().unwrap(), b"abc");
}

#[test]
fn what_comes_while_nothing_is_taken_is_not_lost() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Done(0, abi::ROOM), Step::Done(3, 0)]);
    let service: &'static Service<Script> = Box::leak(Box::new(service));
    world.typed.lock().unwrap().extend(b"abc");
    *world.meanwhile.lock().unwrap() =
        Some(Box::new(|| assert!(service.gate.post(Pending::INPUT).is_none())));
    let mut cpu = Wanted(0);
    // SAFETY: the script needs no CPU.
    unsafe { service.post(Pending::INPUT, &mut cpu) };
    assert_eq!((heard(service)[1..].to_vec(), cpu.0), (vec!["Attach 0".to_string(), "Input 0".into()], 1));
    // SAFETY: as above.
    unsafe { service.look(&mut cpu) };
    assert_eq!(heard(service), ["Input 0"]);
}

#[test]
fn what_comes_without_end_keeps_nobody_from_the_cpu() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Done(2, 0)]);
    world.typed.lock().unwrap().extend(b"abcd");
    let mut cpu = Wanted(0);
    // SAFETY: the script needs no CPU.
    unsafe { service.post(Pending::INPUT, &mut cpu) };
    assert_eq!((heard(&service)[1..].to_vec(), cpu.0), (vec!["Attach 0".to_string(), "Input 0".into()], 1));
    assert!(!service.gate.is_inside(), "others can go inside meanwhile");
    service.space.steps.lock().unwrap().extend([Step::Done(2, 0)]);
    // SAFETY: as above.
    unsafe { service.look(&mut cpu) };
    assert_eq!(heard(&service), ["Input 0"], "the rest comes when it looks again");
    assert!(world.typed.lock().unwrap().is_empty());
    // SAFETY: as above.
    unsafe { service.look(&mut cpu) };
    assert!(heard(&service).is_empty(), "nothing is left");
}

#[test]
fn doorbells_and_alarms_are_events() {
    let (service, _) = service(&[]);
    let interrupts = RefCell::new(0);
    // SAFETY: the script needs no CPU.
    unsafe {
        service.post(Pending::doorbell(5), &mut Kept(&interrupts, &|| {}));
        service.post(Pending::ALARM, &mut Kept(&interrupts, &|| {}));
    }
    assert_eq!(heard(&service)[2..], ["Doorbell 32", "Alarm 9"]);
}

#[test]
fn who_rings_and_finds_nobody_is_inside() {
    let (service, _) = service(&[]);
    let interrupts = RefCell::new(0);
    // SAFETY: the script needs no CPU.
    let ring = |queue| unsafe { service.ring(queue, &mut Kept(&interrupts, &|| {})) };
    (0..2).for_each(ring);
    assert_eq!(heard(&service)[2..], ["Doorbell 1", "Doorbell 2"]);
    assert!(service.gate.enter());
    [2, 3, 3].into_iter().for_each(ring);
    assert!(heard(&service).is_empty(), "whoever is inside sees to it");
    let pending = service.gate.leave().unwrap();
    // SAFETY: as above.
    unsafe { service.settle(pending, &mut Kept(&interrupts, &|| {})) };
    assert_eq!(heard(&service), ["Doorbell 12"], "each queue once");
    assert!(!service.gate.is_inside());
}

#[test]
fn a_doorbell_is_rung_again_behind_a_crash_and_a_kill() {
    let steps = [
        Step::Done(0, 0),
        Step::Fault,
        Step::Done(0, 0),
        Step::Interrupt,
        Step::Done(0, 0),
        Step::Done(0, 0),
    ];
    let (service, _) = service(&steps);
    let interrupts = RefCell::new(0);
    // SAFETY: the script needs no CPU.
    unsafe { service.ring(4, &mut Kept(&interrupts, &|| service.kill())) };
    let rung = heard(&service).iter().filter(|what| *what == "Doorbell 16").count();
    assert_eq!((rung, service.figures().crashes, service.gate.is_inside()), (3, 2, false));
}

#[test]
fn an_event_that_is_tried_again_has_the_time_of_then() {
    let steps = [Step::Done(0, 0), Step::Interrupt, Step::Fault, Step::Done(0, 0), Step::Done(0, 0)];
    for (pending, told) in [(Pending::ALARM, "Alarm 59"), (Pending::INTERRUPT, "Interrupt 59")] {
        NOW.set(9);
        let (service, _) = service(&steps);
        let interrupts = RefCell::new(0);
        // SAFETY: the script needs no CPU.
        unsafe { service.post(pending, &mut Kept(&interrupts, &|| NOW.set(59))) };
        assert_eq!(heard(&service).last().unwrap(), told);
    }
    NOW.set(9);
    let (service, _) = service(&steps);
    let interrupts = RefCell::new(0);
    // What it hears with a doorbell is compared with the time.
    // SAFETY: as above.
    unsafe { service.ring(4, &mut Kept(&interrupts, &|| NOW.set(59))) };
    assert_eq!(heard(&service).iter().filter(|what| *what == "Doorbell 16").count(), 2);
}

#[test]
fn more_to_do_is_an_alarm_as_soon_as_may_be() {
    let (service, world) = service(&[Step::Done(0, 0), Step::Done(1, abi::AGAIN), Step::Done(2, 0)]);
    assert_eq!((access(&service), access(&service)), (1, 2));
    assert_eq!(said(world), ["alarm 0"], "no line of that number");
}

#[test]
fn many_crashes_are_not_all_reported() {
    let (service, world) = service(&[Step::Fault; 100]);
    (0..50).for_each(|_| {
        access(&service);
    });
    assert_eq!((service.figures().crashes, said(world).len()), (100, 11), "1 to 8, 16, 32, 64");
}

#[test]
fn exits_are_counted_where_statistics_are_kept() {
    let page = Box::leak(Box::new(turnstile_exitstat::Page::new(1)));
    let (service, _) = service(&[]);
    let mut timing = Timing::new(Some(page));
    timing.begin(Reason::DataAbort, || 100);
    service.account(&mut timing, Reason::Service, || 130);
    timing.end(|| 150);
    assert_eq!(
        (page.record(Reason::Service).read().total, page.record(Reason::DataAbort).read().count()),
        (50, 0)
    );
    service.account(&mut timing, Reason::Doorbell, || 110);
    assert_eq!(service.figures(), Figures { crashes: 0, exits: 2, ticks: 40 });
    service.account(&mut Timing::new(None), Reason::Service, || unreachable!("nobody looks at the time"));
    service.kill();
    access(&service);
    assert_eq!(service.figures(), Figures { crashes: 1, exits: 2, ticks: 40 });
    service.reset();
    assert_eq!(service.figures(), Figures { crashes: 1, exits: 0, ticks: 0 }, "crashes are the machine's");
}
