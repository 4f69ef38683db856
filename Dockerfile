# docker build -t catome . && docker run --rm -v "$PWD/results:/catome/results" catome
# apptainer build catome.sif docker-daemon://catome:latest
FROM python:3.11-slim
WORKDIR /catome
RUN apt-get update \
 && apt-get install -y --no-install-recommends git make \
 && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY catome catome
RUN pip install --no-cache-dir --constraint constraints.txt '.[experiments]'
COPY . .
ENTRYPOINT ["python", "run.py"]
CMD ["+experiment=ablation_cache"]
