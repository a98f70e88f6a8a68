//! What a guest's sessions take from the embedding program: services, and whose programs.

use trapline_interposer::Service;
use trapline_rpn::ppdf::VerifyingKey;

use super::GuestBuilder;

impl GuestBuilder {
    /// Registers a service that handlers call by its name: `push "service:NAME"` and `callk`.
    ///
    /// ```
    /// use trapline_session::{Command, Condition, GuestBuilder, Limits, Service, ServiceEffect};
    ///
    /// let double = Service::new("double", (1, 1), ServiceEffect::Observes, |call| {
    ///     call.results()[0] = 2 * call.arguments()[0];
    ///     Ok(())
    /// });
    /// let mut session = GuestBuilder::embedded("ia32").memory(32 << 20).service(double).start()?;
    /// session.apply(Command::clause("fbt::do_fork:entry { push 21; push \"service:double\"; callk; log 1 }"))?;
    /// session.run_until(&Condition::end().or_hits(1), &Limits::none());
    /// assert_eq!(session.records().next().unwrap().data, [42, 0, 0, 0]);
    /// # Ok::<(), trapline_session::Error>(())
    /// ```
    #[must_use]
    pub fn service(mut self, service: Service) -> Self {
        self.services.push(service);
        self
    }

    /// Lets all sessions of it insert only programs that this key has signed, if there is a key.
    #[must_use]
    pub fn require_signed(mut self, key: Option<VerifyingKey>) -> Self {
        self.signed_by = key;
        self
    }
}
