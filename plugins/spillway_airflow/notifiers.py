"""Messages to people through Airflow's notifiers and Connections."""

from __future__ import annotations

from html import escape

from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import Context

from spillway.errors import SpillwayError
from spillway.model import NoticeTarget
from spillway.runs.notices import Message


class NotDelivered(SpillwayError):
    """A message has not reached its target; the next try may."""

    retry_helps = True


def deliver(target: NoticeTarget, message: Message) -> None:
    """Send the message by mail, or by the service that the target's Connection names.

    Raises:
        NotDelivered: the server did not take it, or a Connection is missing or wrong.
    """
    try:
        if target.email is not None:
            _mail(target, target.email, message)
        else:
            _post(str(target.apprise), message)
    except NotDelivered:
        raise
    except Exception as problem:  # each service has errors of its own, and none of them may stop the others' notices
        conn_id = target.connection if target.email else target.apprise
        raise NotDelivered(f"through the Connection '{conn_id}': {type(problem).__name__}: {problem}") from problem


def _mail(target: NoticeTarget, address: str, message: Message) -> None:
    """To one address: of several Airflow's client does not tell which ones the server refused."""
    SmtpNotifier(
        to=[address],
        subject=message.title,
        html_content=f"<p>{escape(message.text)}</p>",
        smtp_conn_id=target.connection,
        # Should it be sent twice after all, servers and readers can see that it is one message.
        custom_headers={"Message-ID": f"<{message.identity.replace('@', '.')}@{address.rpartition('@')[2]}>"},
    ).notify(Context())


def _post(conn_id: str, message: Message) -> None:
    """Not by the provider's notifier: that one drops the answer, and what was not delivered would count as told."""
    import apprise
    from airflow.providers.apprise.hooks.apprise import AppriseHook

    hook = AppriseHook(apprise_conn_id=conn_id)
    services = apprise.Apprise()
    hook.set_config_from_conn(conn=hook.get_connection(conn_id), apprise_obj=services)
    if len(services) != 1:
        number = f"{len(services)} services" if services else "no service"
        wanted = "expected one: of several those that work would be told again whenever another one does not"
        raise NotDelivered(f"the Connection '{conn_id}' names {number} that apprise knows; {wanted}")
    if not services.notify(title=message.title, body=message.text, notify_type=apprise.NotifyType.WARNING):
        raise NotDelivered(f"the service of the Connection '{conn_id}' did not take the message")
