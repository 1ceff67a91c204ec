// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile top`: what the exits of a running system cost, live.

pub mod reading;
