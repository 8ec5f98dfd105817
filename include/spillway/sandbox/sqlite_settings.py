"""SQLite connection arguments that Airflow reads by name (``docker/airflow.env``).

The default busy time-out of five seconds is shorter than a loaded machine's longest write: "database is locked" then
ends the scheduler, the triggerer and the DAG processor, and nothing brings them back.
"""

CONNECT_ARGS = {"timeout": 120}
