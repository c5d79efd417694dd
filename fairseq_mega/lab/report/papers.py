"""The tables of both papers by report name."""

from typing import Dict

from fairseq_mega.lab.report import image_tables, language_model_tables, lra_tables, table7
from fairseq_mega.lab.report.paper_table import PaperTable

PAPER_TABLES: Dict[str, PaperTable] = {
    "table2": lra_tables.TABLE2,
    "table3": lra_tables.TABLE3,
    "table4": lra_tables.TABLE4,
    "table5": language_model_tables.TABLE5,
    "table6": image_tables.TABLE6,
    "table7": table7.TABLE7,
    "megalodon-table4": image_tables.MEGALODON4,
    "megalodon-table5": language_model_tables.MEGALODON5,
    "megalodon-table6": lra_tables.MEGALODON6,
    "megalodon-table7": lra_tables.MEGALODON7,
    "megalodon-table8": language_model_tables.MEGALODON8,
}
