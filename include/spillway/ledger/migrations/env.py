"""Runs the migrations on the connection that ``ledger.revisions.upgrade`` hands over."""

from alembic import context

from spillway.ledger.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
context.run_migrations()
