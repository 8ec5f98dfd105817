-- Beside Airflow's own database: Spillway's ledger.
CREATE DATABASE ledger;
