// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who comes when several ask for operations at one cell.

use std::sync::mpsc::channel;
use std::sync::{Mutex, mpsc::Sender};
use std::thread;

use turnstile_vm::attention::Attention;
use turnstile_vm::remote::{Payload, RemoteCell};

/// Says once that it has been called.
fn once(sender: &Sender<()>, said: &mut bool) {
    if !std::mem::replace(said, true) {
        sender.send(()).expect("somebody waits");
    }
    thread::yield_now();
}

#[test]
fn who_asks_again_comes_behind_who_waits() {
    let (cell, attention) = (RemoteCell::new(), Attention::new());
    let order = Mutex::new(Vec::new());
    let call = |who: u64, notify: &dyn Fn(), relax: &mut dyn FnMut()| {
        cell.call(&attention, [who, 0, 0, 0], |_| notify(), relax);
    };
    let (waits, has_waited) = channel();
    let (asked, goes_on) = channel();
    thread::scope(|scope| {
        // The owner.
        scope.spawn(|| {
            while order.lock().expect("not poisoned").len() < 3 {
                cell.serve(|payload: Payload| {
                    order.lock().expect("not poisoned").push(payload[0]);
                    0
                });
                thread::yield_now();
            }
        });
        let (call, waits, asked) = (&call, &waits, &asked);
        let slow = move || {
            // It looks whether it is its turn, and not again before the other one has asked again.
            let mut goes_on = Some(goes_on);
            call(2, &|| {}, &mut || {
                if let Some(goes_on) = goes_on.take() {
                    waits.send(()).expect("somebody waits");
                    goes_on.recv().expect("the other one asks again");
                }
                thread::yield_now();
            });
        };
        let slow = Mutex::new(Some(slow));
        let second = || {
            let slow = slow.lock().expect("not poisoned").take().expect("once");
            scope.spawn(slow);
            has_waited.recv().expect("the second one waits");
        };
        call(1, &second, &mut thread::yield_now);
        let mut said = false;
        // Asked: its request is there, or it waits.
        let relax = &mut || once(asked, &mut said);
        call(1, &|| {}, relax);
    });
    assert_eq!(*order.lock().expect("not poisoned"), [1, 2, 1]);
}
